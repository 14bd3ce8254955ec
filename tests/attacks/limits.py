"""A bound on what one attack may cost while it is tried."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LONGEST_S = 20
MOST_BYTES = 1 << 30


@contextmanager
def limits() -> Iterator[None]:
    """Fail, instead of taking the machine along, when reading takes too long or too much."""
    resource = pytest.importorskip("resource")

    def too_long(*_):
        raise AssertionError(f"longer than {LONGEST_S} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, before[1]))
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
