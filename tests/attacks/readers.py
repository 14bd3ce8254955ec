"""The readers of foreign data, each as a function of bytes: it ends, with a result or a refusal of one line, or it has a fault.

``fuzz`` feeds them for long and under limits of time and memory; ``test_found`` feeds them what fuzzing once found. Where there
are two implementations they must agree, and what a result promises is checked.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.snapshot.plain import assert_same
from vramdoc.allocator.config import AllocatorConfig
from vramdoc.allocator.releases import RULES
from vramdoc.checkpoint.header import read_header
from vramdoc.crashlog.reader import read_text
from vramdoc.errors import UnreadableInput, UsageError
from vramdoc.native import load
from vramdoc.snapshot.model import Snapshot
from vramdoc.snapshot.scanner.library import SCANNER
from vramdoc.snapshot.scanner.scan import scan
from vramdoc.snapshot.schema import snapshot_from_plain
from vramdoc.snapshot.unpickle import unpickle

_RELEASES = list(RULES)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One reader of foreign data."""

    read: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    """Whole and broken examples, to begin with."""


def _result_or_refusal(attempt: Callable[[], _Result]) -> _Result | None:
    """None where the input was refused, which must take one printable line."""
    try:
        return attempt()
    except UnreadableInput as error:
        message = error.message
    assert message.isprintable(), message
    assert len(message) < 400, len(message)
    return None


def _pickle(content: bytes) -> None:
    """What both ways read is the same. Either may refuse what the other reads: the scanner passes over what an event need not
    have, and has limits of its own.
    """
    reference = _result_or_refusal(lambda: snapshot_from_plain(unpickle(io.BytesIO(content))))
    library = load(SCANNER)
    if library is not None and content.startswith(b"\x80"):
        scanned = _result_or_refusal(
            lambda: snapshot_from_plain(*scan(library, io.BytesIO(content)))
        )
        if reference is not None and scanned is not None and not _is_aliased(reference):
            # Events under a key that nobody knows are counted by the scanner and not given back.
            assert_same(replace(scanned, unknown={}), replace(reference, unknown={}))


def _is_aliased(reference: Snapshot) -> bool:
    """Whether one list or dictionary stands in two places, which PyTorch never writes: the reference leaves the second out, the scanner,
    which builds no objects, writes it twice (``tree.h``).
    """
    return any("appear a second time" in problem for problem in reference.problems)


def _crash_text(content: bytes) -> None:
    log = _result_or_refusal(lambda: read_text(io.BytesIO(content)))
    for incident in log.incidents if log else ():
        for part in (incident, *incident.readings.values()):
            assert 0 <= part.start <= part.end <= log.characters, part


def _header(content: bytes, folder: Path) -> None:
    """As it is, and as the text of a header whose length is right: else next to no change gets beyond the length."""
    path = folder / "model.safetensors"
    for whole in (content, len(content).to_bytes(8, "little") + content + bytes(32)):
        path.write_bytes(whole)
        tensors, _ = _result_or_refusal(lambda: read_header(path)) or ((), {})
        assert sum(tensor.nbytes for tensor in tensors) <= len(whole)


def _config(content: bytes) -> None:
    """The first byte chooses the release; what stands behind a NUL is set at run time. A refusal is torch's own text."""
    release = _RELEASES[(content[0] if content else 0) % len(_RELEASES)]
    start, _, later = content[1:].decode("utf-8", "replace").partition("\0")
    with suppress(UsageError):
        config = AllocatorConfig.parse(start, release=release)
        assert AllocatorConfig.parse(config.text, release=release) == config
        config.reset(later)


def _pickle_seeds() -> Iterator[bytes]:
    from tests.attacks.snapshots import BOMBS_OF_LISTS, GOOD, calls, damage
    from tests.evidence.programs import played

    yield GOOD
    yield from BOMBS_OF_LISTS
    snapshot = played(3)[0].snapshot()
    yield from (pickle.dumps(snapshot, protocol) for protocol in range(6))
    yield from (content for _, content in (*calls(), *damage()))


def _crash_text_seeds() -> Iterator[bytes]:
    from tests.crashlog.noise import NOISES
    from tests.crashlog.test_wordings import MESSAGES

    for number, (text, *_) in enumerate(MESSAGES):
        noise = list(NOISES.values())[number % len(NOISES)]
        yield text.encode()
        yield noise(text).encode(("utf-8", "utf-16", "cp1252")[number % 3], "replace")


def _header_seeds() -> Iterator[bytes]:
    from tests.checkpoint.sparse import header_of
    from tests.checkpoint.test_header import LIES

    good = header_of({"a": ("F32", (2, 3)), "b": ("BF16", ()), "c": ("F4", (2,))})
    for header in (good, *(lie for lie, _, _ in LIES.values())):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        if len(text) < 10_000:
            yield len(text).to_bytes(8, "little") + text + bytes(29)
            yield text


def _config_seeds() -> Iterator[bytes]:
    answers = Path(__file__).parents[1] / "allocator" / "data" / "config-answers.jsonl"
    texts = {json.loads(line)[2] for line in answers.read_text(encoding="utf-8").splitlines()}
    for number, text in enumerate(sorted(texts)):
        yield bytes([number % 256]) + text.encode() + b"\0" + text.encode()


def readers(folder: Path) -> dict[str, Reader]:
    """Every reader by name; ``folder`` is for those that want a file."""
    return {
        "pickle": Reader(read=_pickle, seeds=_pickle_seeds),
        "crash-text": Reader(read=_crash_text, seeds=_crash_text_seeds),
        "safetensors-header": Reader(read=partial(_header, folder=folder), seeds=_header_seeds),
        "config": Reader(read=_config, seeds=_config_seeds),
    }
