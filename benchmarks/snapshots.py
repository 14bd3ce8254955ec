"""Write realistic allocator snapshots of any size: seeded, streamed, opcode for opcode what ``pickle.dump`` writes.

    python benchmarks/snapshots.py 1000000 out.pickle

A training loop is played through a small model of the caching allocator: weights live for ever, activations within a step,
a few buffers change size. Stacks of 20 frames come from 3,000 shared frames on about 4,000 call paths, as in real traces, where
every step runs the same lines; events have the keys of torch 2.12 and take about 170 bytes. Nothing is kept per event, so 10,000,000 events take no memory.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

FRAMES, PATHS, DEPTH = 3_000, 4_000, 20
LAYERS, PER_LAYER = 32, 12
FRAME_BYTES = 64 << 10
"""Size of a pickle frame (PEP 3154)."""
MIB = 1 << 20
STARTED_US = 1_764_576_000_000_000


class PickleWriter:
    """Emits opcodes of protocol 4 in frames, with the memo that ``pickle.Pickler`` would keep."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.parts: list[bytes] = []
        self.pending = 0
        self.memo: dict[object, int] = {}
        self.memoized = 0
        stream.write(b"\x80\x04")

    def op(self, code: bytes) -> None:
        """Append one opcode, with its argument."""
        self.parts.append(code)
        self.pending += len(code)
        if self.pending >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """Close the frame."""
        content = b"".join(self.parts)
        if content:
            self.stream.write(b"\x95" + struct.pack("<Q", len(content)) + content)
        self.parts, self.pending = [], 0

    def memoize(self, key: object = None) -> None:
        """Number the value on top, as MEMOIZE does; ``key`` finds it again."""
        if key is not None:
            self.memo[key] = self.memoized
        self.memoized += 1
        self.op(b"\x94")

    def get(self, key: object) -> bool:
        """Refer to what was numbered under ``key``, if it was."""
        index = self.memo.get(key)
        if index is None:
            return False
        self.op(b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index))
        return True

    def text(self, value: str) -> None:
        """A text, once."""
        if not self.get(value):
            encoded = value.encode()
            head = (
                b"\x8c" + bytes([len(encoded)])
                if len(encoded) < 256
                else b"X" + struct.pack("<I", len(encoded))
            )
            self.op(head + encoded)
            self.memoize(value)

    def integer(self, value: int) -> None:
        """The shortest opcode for it."""
        if 0 <= value < 256:
            self.op(b"K" + bytes([value]))
        elif 0 <= value < 65536:
            self.op(b"M" + struct.pack("<H", value))
        elif -(1 << 31) <= value < 1 << 31:
            self.op(b"J" + struct.pack("<i", value))
        else:
            size = value.bit_length() // 8 + 1
            self.op(b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True))

    def value(self, value: object) -> None:
        """Anything but a list or a dictionary."""
        if isinstance(value, bool):
            self.op(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, tuple):
            for item in value:
                self.value(item)
            self.op(b"\x86")
            self.memoize()
        else:
            raise TypeError(type(value))

    def dictionary(self, items: dict[str, object], frames: tuple[int, ...] | None = None) -> None:
        """A dictionary, with ``frames`` as its last key."""
        self.op(b"}")
        self.memoize()
        self.op(b"(")
        for key, value in items.items():
            self.text(key)
            self.value(value)
        if frames is not None:
            self.text("frames")
            self.frames(frames)
        self.op(b"u")

    def frames(self, frames: tuple[int, ...]) -> None:
        """A list of frames."""
        self.op(b"]")
        self.memoize()
        if frames:
            self.op(b"(")
            for frame in frames:
                if not self.get(("frame", frame)):
                    self.frame(frame)
            self.op(b"e")

    def frame(self, frame: int) -> None:
        """One frame, once."""
        self.op(b"}")
        self.memoize(("frame", frame))
        self.op(b"(")
        values = {
            "name": f"function_{frame % 700}",
            "filename": f"/workspace/project/package_{frame % 40}/module_{frame % 200}.py",
            "line": frame % 997 + 1,
        }
        for key, value in values.items():
            self.text(key)
            self.value(value)
        self.op(b"u")


class Allocator:
    """Segments of one block each for large requests, of 512-byte steps for small ones; freed ones are used again by size."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.next_segment = 0x7F0000000000
        self.free: dict[int, list[int]] = {}
        self.small_at = self.small_end = 0
        self.segments: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        self.live: dict[int, tuple[int, tuple[int, ...]]] = {}

    def malloc(self, size: int, frames: tuple[int, ...]) -> tuple[int, tuple[int, int] | None]:
        """Return the address and, where a segment had to be made, its address and size."""
        rounded = -(-size // 512) * 512
        made = None
        cached = self.free.get(rounded)
        if cached:
            address = cached.pop()
        elif rounded <= MIB:
            if self.small_at + rounded > self.small_end:
                made = self.segment(2 * MIB)
                self.small_at, self.small_end = made[0], made[0] + made[1]
            address = self.small_at
            self.small_at += rounded
            self.segments[self.small_end - 2 * MIB][1].append((address, rounded))
        else:
            made = self.segment(max(-(-rounded // (2 * MIB)) * 2 * MIB, 20 * MIB))
            address = made[0]
            self.segments[address][1].append((address, rounded))
        self.live[address] = (size, frames)
        return address, made

    def segment(self, size: int) -> tuple[int, int]:
        """Address and size of a new segment."""
        address = self.next_segment
        self.next_segment += size
        self.segments[address] = (size, [])
        return address, size

    def release(self, address: int) -> int:
        """Free; returns the size that was asked for."""
        size, _ = self.live.pop(address)
        self.free.setdefault(-(-size // 512) * 512, []).append(address)
        return size


def events(
    count: int, rng: random.Random, allocator: Allocator
) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
    """Play training steps until ``count`` events have been made: (action, address, size, stack)."""
    paths = [tuple(rng.randrange(FRAMES) for _ in range(DEPTH)) for _ in range(PATHS)]
    stream = _steps(rng, allocator, paths)
    for _, event in zip(range(count), stream, strict=False):
        yield event


def _steps(
    rng: random.Random, allocator: Allocator, paths: list[tuple[int, ...]]
) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
    def malloc(size: int, path: int) -> Iterator[tuple[str, int, int, tuple[int, ...]]]:
        address, made = allocator.malloc(size, paths[path])
        if made:
            yield "segment_alloc", *made, paths[path]
        held.append(address)
        yield "alloc", address, size, paths[path]

    held: list[int] = []
    for layer in range(LAYERS):
        for weight in range(4):
            yield from malloc(rng.choice((4 * MIB, 16 * MIB, 8192)), layer * 4 + weight)
    sizes = [
        [rng.choice((1000, 65536, 3 * MIB + 100, 12 * MIB, 40 * MIB)) for _ in range(PER_LAYER)]
        for _ in range(LAYERS)
    ]
    while True:
        held = []
        for layer in range(LAYERS):
            for item in range(PER_LAYER):
                jitter = rng.randrange(64) * 512 if item == 0 else 0
                yield from malloc(sizes[layer][item] + jitter, 200 + layer * PER_LAYER + item)
        for number, address in enumerate(reversed(held)):
            path = paths[1000 + number % 1500]
            size = allocator.release(address)
            yield "free_requested", address, size, path
            yield "free_completed", address, size, path


def write_snapshot(path: Path, count: int, seed: int = 0) -> None:
    """Write a snapshot of ``count`` events to ``path``."""
    rng = random.Random(seed)
    allocator = Allocator(rng)
    with path.open("wb") as stream:
        writer = PickleWriter(stream)
        writer.op(b"}")
        writer.memoize()
        writer.op(b"(")
        writer.text("device_traces")
        writer.op(b"]")
        writer.memoize()
        writer.op(b"]")
        writer.memoize()
        for number, (action, address, size, frames) in enumerate(events(count, rng, allocator)):
            if number % 1000 == 0:
                writer.op(b"(" if number == 0 else b"e(")
            fields = {
                "action": action, "addr": address, "size": size, "stream": 0, "time_us": STARTED_US + 7 * number,
                "compile_context": "N/A", "pool_id": (0, 0), "user_metadata": "",
            }  # fmt: skip
            writer.dictionary(fields, frames)
        writer.op(b"ea")
        writer.text("segments")
        _write_segments(writer, allocator)
        writer.text("allocator_settings")
        writer.dictionary(
            {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
        )
        writer.op(b"u.")
        writer.flush()


def _write_segments(writer: PickleWriter, allocator: Allocator) -> None:
    writer.op(b"]")
    writer.memoize()
    writer.op(b"(")
    for address, (size, blocks) in sorted(allocator.segments.items()):
        used = sum(block for _, block in blocks)
        live = [(start, block) for start, block in blocks if start in allocator.live]
        active = sum(block for _, block in live)
        writer.op(b"}")
        writer.memoize()
        writer.op(b"(")
        fields = {
            "device": 0, "address": address, "total_size": size, "allocated_size": active, "active_size": active,
            "requested_size": sum(allocator.live[start][0] for start, _ in live), "stream": 0,
            "segment_type": "small" if size == 2 * MIB else "large", "segment_pool_id": (0, 0), "is_expandable": False,
        }  # fmt: skip
        for key, value in fields.items():
            writer.text(key)
            writer.value(value)
        writer.text("blocks")
        writer.op(b"]")
        writer.memoize()
        writer.op(b"(")
        for start, block in blocks:
            request, frames = allocator.live.get(start, (block, ()))
            state = "active_allocated" if start in allocator.live else "inactive"
            writer.dictionary(
                {"address": start, "size": block, "requested_size": request, "state": state}, frames
            )
        if used < size:
            writer.dictionary(
                {
                    "address": address + used,
                    "size": size - used,
                    "requested_size": 0,
                    "state": "inactive",
                },
                (),
            )
        writer.op(b"eu")
    writer.op(b"e")


if __name__ == "__main__":
    write_snapshot(Path(sys.argv[2]), int(sys.argv[1]))
