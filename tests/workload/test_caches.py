"""Cache strategies on the CPU: the same keys and values come out of each, and each holds what it says."""

import itertools

import pytest
import torch
import transformers

from vramdoc.checkpoint.kv import KvLayout, LayerKv
from vramdoc.workload import transformers_caches
from vramdoc.workload.caches import STRATEGIES, Cache, CacheFactory
from vramdoc.workload.caches.growing import CHUNK, WINDOW
from vramdoc.workload.caches.paged import BLOCK
from vramdoc.workload.transformers_caches import tensors_in

HEADS, SIZE, CAPACITY = 2, 64, 700
STEPS = (300, 1, 1, 260, 1, 130)
EXACT = ("dynamic", "static", "chunked", "paged", "sliding", "offloaded")


def states(tokens: int, seed: int) -> torch.Tensor:
    return torch.randn(1, HEADS, tokens, SIZE, generator=torch.Generator().manual_seed(seed))


def last_of(strategy: str) -> tuple[Cache, torch.Tensor, torch.Tensor, torch.Tensor]:
    cache = CacheFactory(strategy, layers=1, capacity=CAPACITY, sessions=1).open()
    given: list[torch.Tensor] = []
    keys = values = torch.empty(0)
    for seed, tokens in enumerate(STEPS):
        given.append(states(tokens, seed))
        expected = cache.layers[0].key_length(cache.length, tokens)
        keys, values = cache.update(0, given[-1], -given[-1])
        cache.length += tokens
        assert keys.shape[2] == expected
    return cache, keys, values, torch.cat(given, dim=2)


@pytest.mark.parametrize("strategy", EXACT)
def test_what_went_in_comes_out(strategy: str) -> None:
    _, keys, values, given = last_of(strategy)
    shown = keys[:, :, : given.shape[2]]
    assert torch.equal(shown, given[:, :, -shown.shape[2] :])
    assert torch.equal(values[:, :, : given.shape[2]], -shown)


@pytest.mark.parametrize(("strategy", "error"), [("int8", 0.03), ("int4", 0.4), ("fp8", 0.3)])
def test_quantised_states_come_back_nearly(strategy: str, error: float) -> None:
    _, keys, values, given = last_of(strategy)
    assert (keys - given).abs().max() < error
    assert (keys + values).abs().max() < error  # values went in as the negatives of keys


def test_bytes_held_are_those_of_the_strategy() -> None:
    tokens, a_token = sum(STEPS), 2 * HEADS * SIZE * 4
    held = {strategy: last_of(strategy)[0].held_bytes() for strategy in STRATEGIES}
    assert held["dynamic"] == tokens * a_token
    assert held["static"] == CAPACITY * a_token
    assert held["chunked"] == -(-tokens // CHUNK) * CHUNK * a_token
    assert held["paged"] == -(-tokens // BLOCK) * BLOCK * a_token
    assert held["sliding"] == min(tokens, WINDOW - 1) * a_token
    assert held["offloaded"] == 0
    # codes, and a float32 scale and zero a group; the last step went past the residual and left none
    assert held["int8"] == tokens * 2 * HEADS * (SIZE + 8)
    assert held["int4"] == tokens * 2 * HEADS * (SIZE // 2 + 8)
    # codes, and one float32 scale a tensor
    assert held["fp8"] == tokens * 2 * HEADS * SIZE + 2 * 4


def held_by(cache: transformers.Cache) -> int:
    """Bytes of all tensors in a cache of transformers, however it nests them."""
    return sum(tensor.nbytes for layer in cache.layers for tensor in tensors_in(vars(layer)))


@pytest.mark.parametrize("strategy", ["dynamic", "static", "int8", "int4", "fp8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ours_hold_what_the_caches_of_transformers_hold(strategy: str, dtype: torch.dtype) -> None:
    """After every step: the residual fills, is folded into the codes, and fills again."""
    config = transformers.LlamaConfig(
        num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=SIZE
    )
    if reason := transformers_caches.why_not(strategy, config, None):
        pytest.skip(reason)
    theirs = transformers_caches.opener(strategy, config, CAPACITY)()
    ours = CacheFactory(strategy, layers=1, capacity=CAPACITY, sessions=1).open()
    for seed, tokens in enumerate((*STEPS, 1)):
        key = states(tokens, seed).to(dtype)
        mine, _ = ours.update(0, key, -key)
        yours, _ = theirs.update(key, -key, 0)
        ours.length += tokens
        assert mine.shape == yours.shape
        assert mine.dtype == yours.dtype == dtype
        bookkeeping = 8 * (strategy == "static")  # StaticLayer counts its tokens on the device
        assert ours.held_bytes() == held_by(theirs) - bookkeeping


def test_a_backend_that_is_missing_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = transformers.LlamaConfig(num_hidden_layers=1)
    monkeypatch.setitem(transformers_caches.NEEDS, "int8", ("no_such_backend", "vramdoc[kv-quant]"))
    assert transformers_caches.why_not("int8", config, None) == (
        "transformers' int8 cache needs no_such_backend (pip install 'vramdoc[kv-quant]')"
    )


def test_heads_that_do_not_fill_a_packed_group_are_refused() -> None:
    config = transformers.LlamaConfig(num_hidden_layers=1)
    layout = KvLayout(layers=(LayerKv(kind="full", key=64, value=64),), element_bytes=2)
    if reason := transformers_caches.why_not("int8", config, layout):
        pytest.skip(reason)  # no backend here
    assert transformers_caches.why_not("int4", config, layout) == (
        "hqq packs 128 elements for int4, and a layer keeps 64 a token"
    )


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ("fp8", "only supported for models with only full attention"),
        ("chunked", "no cache like 'chunked'"),
    ],
)
def test_what_transformers_cannot_keep_is_said_in_one_line(strategy: str, says: str) -> None:
    reason = transformers_caches.why_not(
        strategy, transformers.MistralConfig(sliding_window=64), None
    )
    assert reason is not None
    assert says in reason
    assert "\n" not in reason


def test_dynamic_allocates_as_transformers_does() -> None:
    """Same shapes at each step, and the first step copies in both."""
    ours, theirs = (
        CacheFactory("dynamic", layers=1, capacity=9, sessions=1).open(),
        transformers.DynamicCache(),
    )
    for seed, tokens in enumerate((3, 1, 2)):
        key = states(tokens, seed)
        mine, _ = ours.update(0, key, key)
        yours, _ = theirs.update(key, key, 0)
        ours.length += tokens
        assert torch.equal(mine, yours)
        assert mine.untyped_storage().nbytes() == yours.untyped_storage().nbytes()
        assert mine.data_ptr() != key.data_ptr()


def test_paged_conversations_share_a_pool_and_give_back() -> None:
    factory = CacheFactory("paged", layers=1, capacity=4 * BLOCK, sessions=2)
    first, second = factory.open(), factory.open()
    for cache, seed in itertools.product((first, second), range(4)):
        cache.update(0, states(BLOCK, seed), states(BLOCK, seed))
        cache.length += BLOCK
    first.close()
    third = factory.open()
    keys, _ = third.update(0, states(4 * BLOCK, 9), states(4 * BLOCK, 9))
    assert torch.equal(keys, states(4 * BLOCK, 9))
    second.length -= 1  # write the last token again: the pool must not have mixed the two
    kept, _ = second.update(0, states(1, 5), states(1, 5))
    assert torch.equal(kept[:, :, :BLOCK], states(BLOCK, 0))
