"""Real GPUs through NVML: read where it answers, a sentence where it does not."""

import sys

import pytest

from vramdoc.errors import DeviceUnavailable, MissingDependency, UsageError
from vramdoc.record.device_choice import choose_device, release_of
from vramdoc.record.devices import real_gpus


def test_without_nvml_there_is_a_sentence_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert real_gpus() == (
        [],
        "NVML cannot be read: the Python package nvidia-ml-py is not installed.",
    )


@pytest.mark.virtual_gpu
def test_what_nvml_answers_is_read(virtual) -> None:
    """The virtual GPU brings an NVML of its own, so the real bindings have something to talk to."""
    done = virtual(
        """
        from vramdoc.record.devices import real_gpus
        (gpu,), note = real_gpus()
        print(gpu.index, gpu.total_bytes >> 30, gpu.used_bytes + gpu.free_bytes == gpu.total_bytes, note)
        import torch
        torch.ones(1 << 20, device="cuda")
        from vramdoc.record.inside.surroundings import foreign_bytes, measure_context, used_before_context
        used, driver = used_before_context()
        print(list(used) == [gpu.uuid], bool(driver), gpu.compute_capability)
        print(str(torch.cuda.get_device_properties(0).uuid) == gpu.uuid)
        """
    )
    first, second, third = done.stdout.splitlines()
    assert first == "0 8 True "
    assert second.startswith("True True ")
    assert third == "True"


@pytest.mark.virtual_gpu
def test_a_device_is_chosen_by_name_size_or_number() -> None:
    virtual = choose_device("rtx4090", 1 << 30, devices=2)
    assert (virtual.kind, virtual.index) == ("virtual", 0)
    assert virtual.assumed["foreign_bytes"] == 1 << 30
    assert virtual.environment({"A": "b"})["A"] == "b"
    with pytest.raises(UsageError):
        choose_device("voodoo2")
    with pytest.raises(DeviceUnavailable, match="cuda:99 cannot be used"):
        choose_device("cuda:99")
    with pytest.raises((MissingDependency, DeviceUnavailable)):
        choose_device("rtx4090", python="/nonexistent/python")


@pytest.mark.parametrize(
    ("version", "release"), [("2.14.1+cu130", "2.14"), ("2.6.0", "2.6"), ("2.15.0a0+git1", "2.15")]
)
def test_the_release_of_a_version(version: str, release: str) -> None:
    assert release_of(version) == release
