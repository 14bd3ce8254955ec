"""Random programs through the simulator and through real torch on the virtual GPU: the same bytes, addresses and events."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.oracle.conftest import RealAllocator
from tests.oracle.programs import PLAIN, WITH_POOLS, Program, Simulated, comparable, programs
from vramdoc.allocator import Device

pytestmark = pytest.mark.virtual_gpu


def assert_same(real: RealAllocator, config: str, program: Program) -> None:
    expected = real.run(config, program)
    device = Device(real.gpu.total_bytes, in_use=real.gpu.context_bytes)
    simulated = Simulated(config, device, expected["streams"], real.release)
    answers = simulated.run(program)
    snapshot = simulated.allocator.snapshot()
    actual = {
        "answers": answers,
        "stats": dict(simulated.allocator.memory_stats()),
        "segments": snapshot["segments"],
        "trace": snapshot["device_traces"][0],
    }
    assert comparable(actual) == comparable(expected)
    assert device.free_bytes == expected["free"]


@given(case=programs(PLAIN))
def test_programs_give_the_same_addresses_statistics_segments_and_events(
    real: RealAllocator, case: tuple[str, Program]
) -> None:
    assert_same(real, *case)


@given(case=programs(WITH_POOLS))
def test_programs_with_private_pools_do_too(real: RealAllocator, case: tuple[str, Program]) -> None:
    assert_same(real, *case)
