"""Programs of allocator calls: how Hypothesis makes them, and how the simulator runs them beside real torch."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

from hypothesis import strategies as st

from vramdoc.allocator import AllocatorConfig, CachingAllocator, ConfigError, Device, OutOfMemory
from vramdoc.allocator.invariants import check

MIB = 1 << 20
Program = list[list[Any]]

CONFIGS = (
    "",
    "max_split_size_mb:21",
    "max_split_size_mb:64,garbage_collection_threshold:0.5",
    "max_split_size_mb:32,max_non_split_rounding_mb:60",
    "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:16,4:8,16:4,>:2]",
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,garbage_collection_threshold:0.5",
    "expandable_segments:True,large_segment_size_mb:64",
    "large_segment_size_mb:40",
    "per_process_memory_fraction:0.4",
    "per_process_memory_fraction:0.4,throw_on_cudamalloc_oom:True",
)
EDGES = (
    1,
    511,
    512,
    513,
    MIB - 512,
    MIB,
    MIB + 1,
    2 * MIB,
    10 * MIB - 512,
    10 * MIB - 1,
    10 * MIB,
    20 * MIB,
    64 * MIB,
)
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, MIB),
    st.sampled_from(EDGES),
    st.integers(MIB, 24 * MIB),
    st.integers(10 * MIB, 280 * MIB),
)


class Draft:
    """A program under construction; it knows which names exist, so that every call is one that torch accepts."""

    def __init__(self, draw: st.DrawFn, config: str) -> None:
        self.draw = draw
        self.config = config
        self.streams = draw(st.integers(1, 4))
        self.live: list[str] = []
        self.pools: list[str] = []
        self.scopes: list[str] = []
        self.program: Program = []

    def add(self, word: str) -> None:
        """Append a call, or nothing where it would make no sense now."""
        getattr(self, f"add_{word}")()

    def stream(self) -> int:
        return self.draw(st.integers(0, self.streams - 1))

    def add_malloc(self) -> None:
        self.live.append(f"t{len(self.program)}")
        self.program.append(["malloc", self.live[-1], self.draw(SIZES), self.stream()])

    def add_free(self) -> None:
        if self.live:
            self.program.append(
                ["free", self.live.pop(self.draw(st.integers(0, len(self.live) - 1)))]
            )

    def add_record_stream(self) -> None:
        if self.live:
            self.program.append(
                ["record_stream", self.draw(st.sampled_from(self.live)), self.stream()]
            )

    def add_empty_cache(self) -> None:
        self.program.append(["empty_cache"])

    def add_reset_peak(self) -> None:
        self.program.append(["reset_peak"])

    def add_fraction(self) -> None:
        self.program.append(["fraction", self.draw(st.sampled_from((0.3, 0.6, 0.95, 1.0)))])

    def add_settings(self) -> None:
        # Lowering max_split_size_mb while larger blocks are split is undefined in PyTorch itself.
        if "max_split" not in self.config:
            other = self.config.replace("expandable_segments:True", "expandable_segments:False")
            text = self.draw(
                st.sampled_from((self.config, other, "roundup_power2_divisions:2", "bogus:1"))
            )
            self.program.append(["settings", text])

    def add_pool(self) -> None:
        self.pools.append(f"p{len(self.program)}")
        options = self.draw(st.sampled_from(({}, {"use_on_oom": True}, {"no_split": True})))
        self.program.append(["pool", self.pools[-1], options])

    def add_enter(self) -> None:
        closed = [name for name in self.pools if name not in self.scopes]
        if closed:
            self.scopes.append(self.draw(st.sampled_from(closed)))
            self.program.append(["enter", self.scopes[-1]])

    def add_leave(self) -> None:
        if self.scopes:
            self.program.append(["leave", self.scopes.pop()])

    def add_drop(self) -> None:
        closed = [name for name in self.pools if name not in self.scopes]
        if closed:
            self.pools.remove(name := self.draw(st.sampled_from(closed)))
            self.program.append(["drop", name])


PLAIN = (
    ["malloc"] * 10
    + ["free"] * 8
    + ["record_stream", "empty_cache", "fraction", "settings", "reset_peak"]
)
WITH_POOLS = [*PLAIN, "pool", "enter", "leave", "drop"]


@st.composite
def programs(draw: st.DrawFn, words: list[str]) -> tuple[str, Program]:
    """A config and a program of calls."""
    config = draw(st.sampled_from(CONFIGS))
    draft = Draft(draw, config)
    for word in draw(st.lists(st.sampled_from(words), min_size=5, max_size=60)):
        draft.add(word)
    while draft.scopes:
        draft.add("leave")
    return config, draft.program


class Simulated:
    """The same calls as in ``allocator_server``, put to the simulator; invariants are checked after every one."""

    def __init__(self, config: str, device: Device, streams: list[int], release: str) -> None:
        self.allocator = CachingAllocator(AllocatorConfig.parse(config, release=release), device)
        self.streams = streams
        self.addresses: dict[str, int] = {}
        self.pools: dict[str, tuple[int, int]] = {}
        self.scopes: dict[str, ExitStack] = {}

    def run(self, program: Program) -> list[Any]:
        answers: list[Any] = []
        for word, *arguments in program:
            try:
                answers.append(getattr(self, f"do_{word}")(*arguments))
            except OutOfMemory as error:
                answers.append(["OutOfMemoryError", error.message])
            except ConfigError as error:
                answers.append([error.exception, error.reason])
            check(self.allocator)
        return answers

    def do_malloc(self, name: str, size: int, stream: int) -> int:
        self.addresses[name] = self.allocator.malloc(size, self.streams[stream])
        return self.addresses[name]

    def do_free(self, name: str) -> None:
        if name in self.addresses:
            self.allocator.free(self.addresses.pop(name))

    def do_record_stream(self, name: str, stream: int) -> None:
        if name in self.addresses:
            self.allocator.record_stream(self.addresses[name], self.streams[stream])

    def do_empty_cache(self) -> None:
        self.allocator.empty_cache()

    def do_fraction(self, fraction: float) -> None:
        self.allocator.set_per_process_memory_fraction(fraction)

    def do_settings(self, text: str) -> None:
        self.allocator.set_allocator_settings(text)

    def do_reset_peak(self) -> None:
        self.allocator.reset_peak_memory_stats()

    def do_pool(self, name: str, options: dict[str, bool]) -> list[int]:
        self.pools[name] = self.allocator.create_pool(**options)
        return list(self.pools[name])

    def do_enter(self, name: str) -> None:
        stack = ExitStack()
        stack.enter_context(self.allocator.use_pool(self.pools[name]))
        self.scopes[name] = stack

    def do_leave(self, name: str) -> None:
        self.scopes.pop(name).close()

    def do_drop(self, name: str) -> None:
        self.allocator.destroy_pool(self.pools.pop(name))


_PROCESS = re.compile(
    r"(Including non-PyTorch memory, this process|Process \d+) has \S+ \S+ memory in use\. "
)
_EVENT_KEYS = ("action", "addr", "device_free", "size", "stream", "pool_id")


def comparable(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply without what comes from clocks, NVML and stack recording."""
    return {
        "answers": [
            [a[0], _PROCESS.sub("", a[1])] if isinstance(a, list) and isinstance(a[0], str) else a
            for a in reply["answers"]
        ],
        "stats": reply["stats"],
        "segments": [
            {**s, "segment_pool_id": list(s["segment_pool_id"])} for s in reply["segments"]
        ],
        "trace": [
            {key: list(e[key]) if key == "pool_id" else e[key] for key in _EVENT_KEYS if key in e}
            for e in reply["trace"]
        ],
    }
