"""A large snapshot's parsed form, kept in a folder under the hash of the file's content, so that the next command need not parse.

A recording keeps its own beside its snapshots. What lies alone shares a folder of the user's cache, where the forms that were not
used for longest give way. A cache is a hint: one that is damaged, foreign or cannot be written is as good as none. Its arrays are loaded without pickle, its
codes are checked, and the rest goes through the schema as any file does. It does not know what a recording is.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vramdoc.errors import StorageProblem, UnreadableInput
from vramdoc.native import cache_folder
from vramdoc.snapshot.content import digest_of
from vramdoc.snapshot.model import Frame, SegmentInfo, Snapshot, StackTable, Trace
from vramdoc.snapshot.reader import read_snapshot
from vramdoc.snapshot.schema import snapshot_from_plain
from vramdoc.units import GIB, MIB

FORMAT = 1
WORTHWHILE = 64 * MIB
"""Smaller files are parsed in a quarter of a second."""
MOST_SHARED = GIB
"""Bytes kept in the shared folder; a million events take 40 MiB."""
_COLUMNS = {
    "action": np.uint8, "address": np.int64, "size": np.int64, "stream": np.int64, "time_us": np.int64, "pool": np.int16,
    "stack": np.int32,
}  # fmt: skip
_NO_CACHE = (
    OSError,
    EOFError,
    MemoryError,
    RecursionError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    zipfile.BadZipFile,
    UnreadableInput,
)
"""What reading a foreign or damaged parsed form may end in."""

_Arrays = Mapping[str, npt.NDArray[Any]]


def read_snapshot_cached(
    path: Path, folder: Path | None = None, *, worthwhile: int = WORTHWHILE
) -> Snapshot:
    """``read_snapshot(path)``, from ``folder`` when the same content was read before.

    Args:
        path: the snapshot.
        folder: where parsed forms are kept; made when first needed. The shared one by default.
        worthwhile: size of file, in bytes, from which on they are.

    Raises:
        UnreadableInput: as ``read_snapshot``.
    """
    try:
        if path.stat().st_size < worthwhile:
            return read_snapshot(path)
        content = digest_of(path)[:32]
        home = cache_folder() / "parsed" if folder is None else folder
    except (OSError, StorageProblem):
        return read_snapshot(path)  # which says what is wrong with the file
    kept = home / f"{content}.v{FORMAT}.npz"
    with contextlib.suppress(*_NO_CACHE):
        snapshot = _load(kept)
        with contextlib.suppress(OSError):
            os.utime(kept)  # used just now
        return snapshot
    snapshot = read_snapshot(path)
    with contextlib.suppress(OSError):
        _keep(snapshot, kept)
        if folder is None:
            _make_room(home, MOST_SHARED)
    return snapshot


def _make_room(folder: Path, most: int) -> None:
    """Delete what was used longest ago, until the rest takes at most so many bytes."""
    found = [(status.st_mtime_ns, status.st_size, path) for path, status in _forms(folder)]
    taken = sum(size for _, size, _ in found)
    for _, size, path in sorted(found)[:-1]:
        if taken <= most:
            break
        path.unlink(missing_ok=True)
        taken -= size


def _forms(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.glob("*.npz"):
        with contextlib.suppress(FileNotFoundError):  # another process made room
            yield path, path.stat()


def _keep(snapshot: Snapshot, kept: Path) -> None:
    """Write all of it, then put it in place."""
    stacks: dict[tuple[Frame, ...], int] = {}
    table = next((t.stacks for t in snapshot.traces if isinstance(t.stacks, StackTable)), None)
    rest = {
        "snapshot": {
            **snapshot.unknown,
            "segments": [_plain_segment(segment, stacks) for segment in snapshot.segments],
            "host_segments": [
                _plain_segment(segment, stacks) for segment in snapshot.host_segments
            ],
            "allocator_settings": snapshot.allocator_settings,
            "external_annotations": [asdict(annotation) for annotation in snapshot.annotations],
            "device_traces": [{"actions": t.actions, "pools": t.pools} for t in snapshot.traces],
        },
        "problems": snapshot.problems,
        "frames": [] if table is None else [_plain_frame(frame) for frame in table.frames],
        "stacks": [[_plain_frame(frame) for frame in stack] for stack in stacks],
    }
    arrays = {
        f"{name}{trace.device}": getattr(trace, name)
        for trace in snapshot.traces
        for name in _COLUMNS
    }
    if table is not None:
        arrays.update(indices=table.indices, ends=table.ends)
    arrays["rest"] = np.frombuffer(json.dumps(rest).encode("ascii"), np.uint8)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".new", delete=False) as file:
        own = Path(file.name)
        try:
            np.savez(file, **arrays)
        except BaseException:
            own.unlink(missing_ok=True)
            raise
    own.replace(kept)


def _plain_segment(segment: SegmentInfo, stacks: dict[tuple[Frame, ...], int]) -> dict[str, Any]:
    """A segment in PyTorch's own schema, with a number in place of every stack."""

    def plain(record: Any) -> dict[str, Any]:
        own = {name: getattr(record, name) for name in record.__dataclass_fields__}
        return {**own, "frames": stacks.setdefault(record.frames, len(stacks))}

    return {**plain(segment), "blocks": [plain(block) for block in segment.blocks]}


def _plain_frame(frame: Frame) -> tuple[str, int, str]:
    return frame.filename, frame.line, frame.name


def _load(kept: Path) -> Snapshot:
    with kept.open("rb") as file:
        with zipfile.ZipFile(file) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("ours are not compressed, so that none can inflate")
        arrays = np.load(file, allow_pickle=False)
        rest = json.loads(arrays["rest"].tobytes())
        snapshot = snapshot_from_plain(rest["snapshot"], _KeptColumns(rest, arrays))
    return replace(snapshot, problems=tuple(map(str, rest["problems"])))


class _KeptColumns:
    """The stacks and events of a parsed form, for the schema (``schema.Columns``)."""

    def __init__(self, rest: Mapping[str, Any], arrays: _Arrays) -> None:
        self._arrays = arrays
        self._stacks = [tuple(map(_frame, stack)) for stack in rest["stacks"]]
        frames = tuple(map(_frame, rest["frames"]))
        if "ends" in arrays:
            ends, indices = (
                _column(arrays["ends"], np.int64),
                _column(arrays["indices"], np.int32, len(frames)),
            )
        else:
            ends, indices = np.zeros(1, np.int64), np.empty(0, np.int32)
        if (
            ends[0] != 0
            or ends[-1] != len(indices)
            or (np.diff(ends) <= 0).any()
            or (indices < 0).any()
        ):
            raise ValueError("stacks do not fill their table")
        self._table = StackTable(frames=frames, indices=indices, ends=ends)

    def code(self, frames: Any, /) -> int:
        """The number that stands for a stack."""
        return frames if isinstance(frames, int) and self._stacks[frames] else -1

    def stack(self, code: int, /) -> tuple[Frame, ...]:
        """The stack of a segment or a block."""
        return self._stacks[code]

    def table(self) -> StackTable:
        """The stacks of the traces."""
        return self._table

    def trace(self, device: int, events: Any, problems: Counter[str], /) -> Trace:  # noqa: ARG002 - kept with the rest
        """The columns of one device."""
        actions = tuple(map(str, events["actions"]))
        pools = tuple((int(first), int(second)) for first, second in events["pools"])
        below = {"action": len(actions), "pool": len(pools), "stack": len(self._table)}
        columns = {
            name: _column(self._arrays[f"{name}{device}"], dtype, below.get(name))
            for name, dtype in _COLUMNS.items()
        }
        if len(set(map(len, columns.values()))) != 1:
            raise ValueError("columns of unequal length")
        return Trace(device=device, actions=actions, pools=pools, stacks=self._table, **columns)


def _frame(value: Any) -> Frame:
    filename, line, name = value
    return Frame(str(filename), int(line), str(name))


def _column(
    array: npt.NDArray[Any], dtype: npt.DTypeLike, below: int | None = None
) -> npt.NDArray[Any]:
    """``array``, when it is a column of the type, whose codes (if they are) are -1 or below a number."""
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError("not a column of this kind")
    if below is not None and len(array) and not -1 <= int(array.min()) <= int(array.max()) < below:
        raise ValueError("a code beyond its table")
    return array
