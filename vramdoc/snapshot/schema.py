"""Plain containers to a Snapshot, for every schema of torch 2.0 to 2.15 (allocator-spec 8.1 to 8.5).

It asks for the keys it knows, keeps unknown top-level ones aside and survives contradictions, which it reports as
sentences. It does not know how the containers were read.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from vramdoc.errors import UnreadableInput
from vramdoc.snapshot.columns import PlainColumns, as_int, as_pool_id, as_text
from vramdoc.snapshot.model import (
    Annotation,
    BlockInfo,
    Frame,
    SegmentInfo,
    Snapshot,
    StackTable,
    Trace,
)

KNOWN_KEYS = frozenset(
    {
        "segments",
        "device_traces",
        "allocator_settings",
        "external_annotations",
        "host_segments",
        "host_traces",
    }
)
STATES = {
    "active_allocated": "active_allocated",
    "active_pending_free": "active_pending_free",
    "active_awaiting_free": "active_pending_free",  # so spelled in torch's docstring only
    "inactive": "inactive",
}
DEFAULT_POOL = (0, 0)
LARGEST_SIZE = 1 << 47
"""Bytes from which on a size is nonsense: all that the addresses of a process can name."""
LARGEST_UNKNOWN = 1000
"""Values kept of anything nobody knows: enough to look at, too few to fill memory through shared references."""
NONSENSE = "sizes that no device can have were taken as 0"
MOST_SENTENCES = 5
"""Contradictions of one kind that are spelled out before the rest is only counted."""


class Columns(Protocol):
    """What reads stacks and events: ``columns.PlainColumns`` for plain ones, ``scanner.scan.ScannedColumns`` for scanned ones."""

    def code(self, frames: Any, /) -> int:
        """The code of one recorded stack; -1 for an absent, empty or malformed one."""

    def stack(self, code: int, /) -> tuple[Frame, ...]:
        """The stack of a code."""

    def table(self) -> StackTable:
        """All stacks by code."""

    def trace(self, device: int, events: Any, problems: Counter[str], /) -> Trace:
        """One device's events as columns; ``stacks`` may still be empty."""


def snapshot_from_plain(data: Any, columns: Columns | None = None) -> Snapshot:
    """Build the records. ``data`` is consumed: the event lists are emptied as they are read.

    Args:
        data: plain containers.
        columns: what the stacks and events in ``data`` refer to, when a scanner has read them.

    Raises:
        UnreadableInput: this is not an allocator snapshot.
    """
    if isinstance(data, list) and data and _is_segment(data[0]):
        data = {"segments": data}  # torch.cuda.memory_snapshot() returns the segments alone
    if not isinstance(data, dict) or not isinstance(data.get("segments"), (list, tuple)):
        raise UnreadableInput(
            "not an allocator snapshot: it has no list of segments",
            "write one with torch.cuda.memory._dump_snapshot(), or run under `vramdoc record`",
        )
    return _Reading(columns or PlainColumns()).snapshot(data)


def _is_segment(value: Any) -> bool:
    return isinstance(value, dict) and "total_size" in value and "blocks" in value


class _Reading:
    """One pass over one snapshot: what was interned and what was wrong so far."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.stack_tuples: dict[int, tuple[Frame, ...]] = {}
        self.counted: Counter[str] = Counter()
        self.sentences: list[str] = []
        self.visited: set[int] = set()

    def snapshot(self, data: dict[Any, Any]) -> Snapshot:
        segments = self.segments(data.get("segments"))
        host_segments = self.segments(data.get("host_segments"))
        traces = self.traces(data.pop("device_traces", None))
        table = self.columns.table()
        return Snapshot(
            segments=segments,
            host_segments=host_segments,
            traces=tuple(dataclasses.replace(trace, stacks=table) for trace in traces),
            allocator_settings=_settings(data.get("allocator_settings")),
            annotations=self.annotations(data.get("external_annotations")),
            problems=self.problems(),
            unknown={
                as_text(key, repr(type(key))): _bounded(value)
                for key, value in data.items()
                if key not in KNOWN_KEYS
            },
        )

    def problems(self) -> tuple[str, ...]:
        spelled = self.sentences[:MOST_SENTENCES]
        if len(self.sentences) > MOST_SENTENCES:
            spelled.append(
                f"{len(self.sentences) - MOST_SENTENCES} more segments contradict themselves"
            )
        return (
            *spelled,
            *(f"{count} {sentence}" for sentence, count in sorted(self.counted.items()) if count),
        )

    def once(self, items: Any, what: str) -> Iterable[Any]:
        """The items of a list that was not walked before.

        PyTorch never writes one list, or one segment, twice. A small hostile file can: a hundred thousand references to one
        list of a hundred thousand blocks.
        """
        if not isinstance(items, (list, tuple)):
            if items is not None:
                self.counted[f"{what} are no list and were left out"] += 1
            return ()
        if items and id(items) in self.visited:
            self.counted[f"lists of {what} appear a second time and were left out"] += 1
            return ()
        self.visited.add(id(items))
        return items

    def dicts(self, items: Any, what: str) -> Iterable[dict[Any, Any]]:
        for item in self.once(items, what):
            if not isinstance(item, dict):
                self.counted[f"{what} are no dictionaries and were left out"] += 1
            elif id(item) in self.visited:
                self.counted[f"{what} appear a second time and were left out"] += 1
            else:
                self.visited.add(id(item))
                yield item

    def size(self, value: Any) -> int:
        size = as_int(value)
        if 0 <= size < LARGEST_SIZE:
            return size
        self.counted[NONSENSE] += 1
        return 0

    def segments(self, items: Any) -> tuple[SegmentInfo, ...]:
        return tuple(map(self.segment, self.dicts(items, "segments")))

    def segment(self, item: dict[Any, Any]) -> SegmentInfo:
        address = as_int(item.get("address"))
        segment = SegmentInfo(
            device=as_int(item.get("device")),
            address=address,
            total_size=self.size(item.get("total_size")),
            allocated_size=self.size(item.get("allocated_size")),
            active_size=self.size(item.get("active_size")),
            requested_size=self.size(item.get("requested_size")),
            stream=as_int(item.get("stream")),
            segment_type=as_text(item.get("segment_type"), "large"),
            segment_pool_id=as_pool_id(item.get("segment_pool_id")) or DEFAULT_POOL,
            is_expandable=item.get("is_expandable") is True,
            blocks=self.blocks(address, item.get("blocks")),
            frames=self.frames(item.get("frames")),
        )
        self.sentences.extend(_contradictions(segment))
        return segment

    def blocks(self, address: int, items: Any) -> tuple[BlockInfo, ...]:
        blocks = []
        for item in self.dicts(items, "blocks"):
            # Torch 2.0 gives no address; blocks follow one another without gaps.
            start = as_int(item.get("address"), address)
            size = self.size(item.get("size"))
            address = as_int(start + size)
            frames, requested_size = item.get("frames"), item.get("requested_size")
            if frames is None:
                frames, requested_size = _latest(item.get("history"), requested_size)
            state = as_text(item.get("state"), "?")
            if state not in STATES:
                self.counted["blocks are in a state nobody knows and count as live"] += 1
            blocks.append(
                BlockInfo(
                    address=start,
                    size=size,
                    requested_size=size if requested_size is None else self.size(requested_size),
                    state=STATES.get(state, state),
                    frames=self.frames(frames),
                )
            )
        return tuple(blocks)

    def frames(self, items: Any) -> tuple[Frame, ...]:
        code = self.columns.code(items)
        if code < 0:
            return ()
        if code not in self.stack_tuples:
            self.stack_tuples[code] = self.columns.stack(code)
        return self.stack_tuples[code]

    def traces(self, items: Any) -> tuple[Trace, ...]:
        return tuple(
            self.trace(device, self.events(device, events))
            for device, events in enumerate(self.once(items, "device traces"))
        )

    def trace(self, device: int, events: Any) -> Trace:
        trace = self.columns.trace(device, events, self.counted)
        possible = (trace.size >= 0) & (trace.size < LARGEST_SIZE)
        if possible.all():
            return trace
        self.counted[NONSENSE] += int(len(trace) - possible.sum())
        return dataclasses.replace(trace, size=trace.size * possible)

    def events(self, device: int, events: Any) -> Any:
        """The events of one device: as the scanner left them, or a list of our own in place of one not read before."""
        if not isinstance(events, (list, tuple)) and events is not None:
            return events
        own = list(self.once(events, f"events of device {device}"))
        if isinstance(events, list):
            events.clear()
        return own

    def annotations(self, items: Any) -> tuple[Annotation, ...]:
        return tuple(
            Annotation(
                name=as_text(item.get("name")),
                stage=as_text(item.get("stage")),
                device=as_int(item.get("device")),
                time_us=as_int(item.get("time_us"), -1),
            )
            for item in self.dicts(items, "annotations")
        )


def _latest(history: Any, requested_size: Any) -> tuple[Any, Any]:
    """Stack and size of a block in the layout of torch 2.0: ``history``, the latest use first."""
    if isinstance(history, (list, tuple)) and history and isinstance(history[0], dict):
        latest = history[0]
        return latest.get("frames"), requested_size if requested_size is not None else latest.get(
            "real_size"
        )
    return None, requested_size


def _contradictions(segment: SegmentInfo) -> list[str]:
    """What a segment says of itself and its blocks do not bear out; at most one sentence."""
    blocks = segment.blocks
    name = f"segment {segment.address:#x}"
    total = sum(block.size for block in blocks)
    if total != segment.total_size:
        return [f"blocks of {name} add up to {total} of {segment.total_size} bytes"]
    expected = segment.address
    for block in blocks:
        if block.address != expected:
            return [f"blocks of {name} leave a gap or overlap at {block.address:#x}"]
        expected += block.size
    active = sum(block.size for block in blocks if block.state != "inactive")
    if active != segment.active_size:
        return [f"{name} says {segment.active_size} bytes are active, its blocks say {active}"]
    return []


def _settings(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        return {}
    bounded: Mapping[str, Any] = _bounded(value)
    return bounded


def _bounded(value: Any) -> Any:
    """A copy of a plain value with at most LARGEST_UNKNOWN parts, ten deep; what is beyond is the string ``"..."``."""
    left = [LARGEST_UNKNOWN]

    def copy(part: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > 10:
            return "..."
        if isinstance(part, dict):
            return {
                str(key)[:200]: copy(item, depth + 1)
                for key, item, _ in zip(part, part.values(), range(LARGEST_UNKNOWN), strict=False)
                if isinstance(key, (str, int, float))
            }
        if isinstance(part, (list, tuple)):
            return [
                copy(item, depth + 1) for item, _ in zip(part, range(LARGEST_UNKNOWN), strict=False)
            ]
        if isinstance(part, str):
            return part[:10_000]
        return part if part is None or isinstance(part, (bool, float)) else as_int(part, -1)

    return copy(value, 0)
