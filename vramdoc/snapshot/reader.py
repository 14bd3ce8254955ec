"""The one way in: a file that holds an allocator snapshot, whatever it is wrapped in, to a Snapshot.

Pickle, JSON, gzip of either, and the HTML page that memory_viz writes (allocator-spec 8.8). The kind is told by content, never
by name. It does not know a snapshot's keys (``schema``).
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from vramdoc.errors import UnreadableInput
from vramdoc.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from vramdoc.snapshot.model import Snapshot
    from vramdoc.snapshot.scanner.scan import ScannedColumns

HEAD_BYTES = 64 << 10
"""How much of a file is looked at to tell what it is."""
INFLATED_FREELY = 64 * MIB
MOST_INFLATED = 100
"""A gzip file may grow this many times beyond what is free. Real snapshots compress 4 to 20 times, deflate's limit is 1032."""
LARGEST_JSON = 2 * GIB
"""JSON is read as a whole, and takes several times its size in memory; a million events are about half a gigabyte."""

_GZIP = b"\x1f\x8b"
_PICKLE = re.compile(rb"\x80[\x02-\x05]|[\]}]q\x00|\([dl]p\d+\n|\(d[SV]")
"""A protocol, or how a list and a dictionary begin in protocols 1 and 0."""
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")
_JSON_KEYS = (b'"segments"', b'"device_traces"', b'"total_size"')
_HTML = re.compile(
    rb"\s*(?:<!--.*?-->\s*)?<(?:!doctype|html|head|script)", re.IGNORECASE | re.DOTALL
)
_VIZ_FILE = re.compile(rb'"base64":\s*"([A-Za-z0-9+/=]+)"')
_HOW_TO_WRITE = "write one with torch.cuda.memory._dump_snapshot(), or run under `vramdoc record`"


def looks_like_snapshot(path: Path) -> bool:
    """Whether the first bytes are those of a pickle, or of JSON or HTML that names a snapshot's keys; gzip is looked into.

    Any pickle counts: what a pickle holds is only known by reading it, and ``read_snapshot`` says why it is none.
    """
    try:
        with path.open("rb") as file:
            return _kind(_inflated_head(file.read(HEAD_BYTES))) is not None
    except OSError:
        return False


def read_snapshot(path: Path) -> Snapshot:
    """Read ``path``.

    Raises:
        UnreadableInput: missing, empty, truncated, damaged, hostile, or something else than a snapshot.
    """
    try:
        with path.open("rb") as file:
            return _unwrapped(file, path)
    except UnreadableInput as error:
        raise UnreadableInput(_named(path, error.message), error.hint) from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UnreadableInput(f"{path.name} is a truncated or damaged gzip file") from error
    except FileNotFoundError as error:
        raise UnreadableInput(f"{path.name} does not exist") from error
    except OSError as error:
        raise UnreadableInput(f"{path.name} cannot be read: {error.strerror or error}") from error


def _unwrapped(file: BinaryIO, path: Path) -> Snapshot:
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if not head:
        raise UnreadableInput(f"{path.name} is empty", _HOW_TO_WRITE)
    if not head.startswith(_GZIP):
        return _snapshot(file, head, path.name)
    allowed = INFLATED_FREELY + MOST_INFLATED * path.stat().st_size
    with gzip.GzipFile(fileobj=file) as inflated:
        bounded = io.BufferedReader(_Bounded(inflated, allowed), buffer_size=1 << 17)
        return _snapshot(cast("BinaryIO", bounded), _inflated_head(head), path.name)


def _snapshot(stream: BinaryIO, head: bytes, name: str) -> Snapshot:
    from vramdoc.snapshot.schema import snapshot_from_plain  # noqa: PLC0415 - numpy; sniffing stays cheap

    match _kind(head):
        case "pickle":
            return snapshot_from_plain(*_from_pickle(stream, head))
        case "json":
            return snapshot_from_plain(_from_json(_all_of(stream)))
        case "html":
            pickled = _from_html(_all_of(stream))
            return _snapshot(io.BytesIO(pickled), pickled[:HEAD_BYTES], "the file inside the page")
        case _:
            raise UnreadableInput(f"{name} is no allocator snapshot", _HOW_TO_WRITE)


def _from_pickle(stream: BinaryIO, head: bytes) -> tuple[Any, ScannedColumns | None]:
    """Plain containers by the compiled scanner where there is one, else by Python's own unpickler."""
    from vramdoc.snapshot.scanner.library import scanner_library  # noqa: PLC0415 - only for pickles
    from vramdoc.snapshot.scanner.scan import scan  # noqa: PLC0415 - only for pickles
    from vramdoc.snapshot.unpickle import unpickle  # noqa: PLC0415 - only for pickles

    # The scanner knows the binary opcodes, which a pickle of protocol 2 and higher opens with.
    library = scanner_library() if head.startswith(b"\x80") else None
    return (unpickle(stream), None) if library is None else scan(library, stream)


def _named(path: Path, message: str) -> str:
    return message if message.startswith(path.name) else f"{path.name}: {message}"


def _kind(head: bytes) -> str | None:
    """``pickle``, ``json``, ``html`` or None, told by the first bytes."""
    if _PICKLE.match(head):
        return "pickle"
    if _JSON.match(head) and any(key in head for key in _JSON_KEYS):
        return "json"
    if _HTML.match(head) and (b"add_local_files" in head or b"MemoryViz" in head):
        return "html"
    return None


def _inflated_head(head: bytes) -> bytes:
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""


def _all_of(stream: BinaryIO) -> bytes:
    # Asked for a number of bytes, Python would reserve as many at once.
    content = stream.read()
    if len(content) > LARGEST_JSON:
        raise UnreadableInput(
            f"text of more than {format_bytes(LARGEST_JSON)} is not read",
            "dump the snapshot as a pickle",
        )
    return content


def _from_json(content: bytes) -> Any:
    from vramdoc.snapshot.unpickle import collector_off  # noqa: PLC0415 - only where JSON is read

    try:
        with collector_off():
            return json.loads(content)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise UnreadableInput(f"the JSON is truncated or damaged{where}") from error


def _from_html(content: bytes) -> bytes:
    """The pickle inside a page of ``torch.cuda._memory_viz``: base64, padded with NUL bytes."""
    found = _VIZ_FILE.search(content)
    if found is None:
        raise UnreadableInput("the page holds no allocator snapshot", _HOW_TO_WRITE)
    try:
        return base64.b64decode(found[1])
    except binascii.Error as error:
        raise UnreadableInput("the snapshot inside the page is damaged") from error


class _Bounded(io.RawIOBase):
    """A decompressed stream that refuses to grow beyond ``allowed`` bytes."""

    def __init__(self, stream: gzip.GzipFile, allowed: int) -> None:
        self._stream = stream
        self._allowed = allowed
        self._left = allowed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._stream.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise UnreadableInput(
                f"the file inflates beyond {format_bytes(self._allowed)}, {MOST_INFLATED} times its own size",
                "unpack it yourself if you trust it",
            )
        return count
