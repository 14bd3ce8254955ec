"""Cache strategies on the CPU: the same keys and values come out of each, and each holds what it says."""

import itertools

import pytest
import torch
import transformers

from vramdoc.workload.caches import STRATEGIES, Cache, CacheFactory
from vramdoc.workload.caches.growing import CHUNK, WINDOW
from vramdoc.workload.caches.paged import BLOCK

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


@pytest.mark.parametrize(("strategy", "error"), [("int8", 0.03), ("int4", 0.4)])
def test_quantised_states_come_back_nearly(strategy: str, error: float) -> None:
    _, keys, values, given = last_of(strategy)
    assert (keys - given).abs().max() < error
    assert torch.equal(keys, -values)


def test_bytes_held_are_those_of_the_strategy() -> None:
    tokens, a_token = sum(STEPS), 2 * HEADS * SIZE * 4
    held = {strategy: last_of(strategy)[0].held_bytes() for strategy in STRATEGIES}
    assert held["dynamic"] == tokens * a_token
    assert held["static"] == CAPACITY * a_token
    assert held["chunked"] == -(-tokens // CHUNK) * CHUNK * a_token
    assert held["paged"] == -(-tokens // BLOCK) * BLOCK * a_token
    assert held["sliding"] == min(tokens, WINDOW - 1) * a_token
    assert held["offloaded"] == 0
    # codes and one float32 scale a group of 64; the last step went past the residual and left none
    assert held["int8"] == tokens * 2 * HEADS * (SIZE + 4)
    assert held["int4"] == tokens * 2 * HEADS * (SIZE // 2 + 4)


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
