"""The catalogue: GPUs by key, name or size, and where every figure comes from."""

import pytest

from vramdoc.errors import UsageError
from vramdoc.units import GIB
from vramdoc.virtual_gpu.catalogue import CATALOGUE, find_gpu


def test_it_holds_what_people_own_and_rent() -> None:
    wanted = {
        "rtx2080ti",
        "rtx3060",
        "rtx3090",
        "rtx4090",
        "rtx5090",
        "t4",
        "v100-16gb",
        "l4",
        "a10g",
    }
    wanted |= {"a100-40gb", "a100-80gb", "l40s", "h100", "h200", "b200"}
    assert wanted <= set(CATALOGUE)
    assert len(CATALOGUE) >= 25


@pytest.mark.parametrize("model", CATALOGUE.values(), ids=lambda model: model.key)
def test_every_figure_says_where_it_comes_from(model) -> None:
    figures = {
        "total_bytes",
        "compute_capability",
        "multiprocessors",
        "context_bytes",
        "cublas_handle_bytes",
    }
    assert figures == set(model.sources)
    assert all(model.sources.values())
    assert find_gpu(model.key) is model


@pytest.mark.parametrize("model", CATALOGUE.values(), ids=lambda model: model.key)
def test_reported_memory_is_less_than_the_box_says(model) -> None:
    sizes = (8, 10, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141, 192)
    boxed = next(size for size in sizes if size * GIB > model.total_bytes)
    assert 0.90 < model.total_bytes / (boxed * GIB) < 1


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("RTX-4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("rtx 4090", "rtx4090"),
        ("a100", "a100-80gb"),
        ("v100", "v100-16gb"),
        ("Tesla T4", "t4"),
    ],
)
def test_spellings_that_people_use(text: str, key: str) -> None:
    assert find_gpu(text).key == key


def test_a_size_is_a_device_of_exactly_that_size() -> None:
    model = find_gpu("24GiB")
    assert model.total_bytes == 24 * GIB
    assert (model.key, model.name) == ("24GiB", "virtual GPU of 24.00 GiB")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("rtx4095", "rtx4090"),
        ("h1000", "h100"),
        ("a100-60gb", "a100-80gb"),
        ("teapot", "vramdoc gpus"),
        ("2TiB", "1.00 GiB to 1.00 TiB"),
        ("0GiB", "1.00 GiB to 1.00 TiB"),
        ("12parsecs", "24GiB"),
        ("", "rtx4090"),
    ],
)
def test_unknown_names_get_the_nearest_ones(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(text)
    assert hint in caught.value.hint
