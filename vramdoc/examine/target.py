"""What the person handed us, recognised by content and not only by name.

It opens as little as it must and judges nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vramdoc.errors import UnreadableInput, UsageError

SNIFFED_BYTES = 64 * 1024
"""Enough for any header that tells formats apart; a bigger head would only cost time on slow disks."""

_LARGEST_JSON = 64 << 20
"""JSON that names nothing of ours in its head is looked into up to here, only to say what it is."""

TEXT_SUFFIXES = (".log", ".txt", ".out", ".err")
"""Endings of crash texts; some file systems mark every file as executable."""
SNAPSHOT_SUFFIXES = (".pickle", ".pkl", ".json", ".gz")

KINDS = "a .safetensors file, a *.safetensors.index.json, a Hugging Face folder, an allocator snapshot (.pickle, .json, .gz), a recording folder, or a crash text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One recognised input."""

    kind: str
    """``model``, ``model-folder``, ``snapshot``, ``snapshots`` (one a rank), ``recording``, ``crash-text`` or ``command``."""
    path: Path | None
    """None for standard input and for a command."""
    label: str = ""
    """What to call a target that has no path."""
    paths: tuple[Path, ...] = ()
    """Of ``snapshots``, in the order of their ranks."""
    sources: tuple[Path, ...] = ()
    """The scripts beside a crash text, or the one that a command starts: read by lint, whose findings are evidence."""

    @property
    def name(self) -> str:
        """The file's own name; never its folder, which may be private."""
        return self.label or "-" if self.path is None else self.path.resolve().name


def recognise(argument: str) -> Target:
    """Find out what ``argument`` is.

    Raises:
        UsageError: there is no such file.
        UnreadableInput: it is none of the things that can be used, or empty.
    """
    if not argument:
        raise UsageError("the target is an empty word", "is a shell variable unset?")
    if argument == "-":
        return Target(kind="crash-text", path=None)
    path = Path(argument)
    try:
        if path.is_dir():
            return Target(kind=_folder_kind(path), path=path)
        if not path.exists():
            raise UsageError(f"{argument} does not exist", f"give {KINDS}")
        if not path.is_file():
            raise UnreadableInput(f"{argument} is not a regular file", f"give {KINDS}")
        with path.open("rb") as file:
            head = file.read(SNIFFED_BYTES)
    except OSError as error:
        raise UnreadableInput(
            f"{argument} cannot be read: {error.strerror or error}", "check its permissions"
        ) from error
    if not head:
        raise UnreadableInput(f"{argument} is empty", f"give {KINDS}")
    return Target(kind=_file_kind(path, head), path=path)


def recognise_all(words: Sequence[str]) -> Target:
    """One word is a target; several are a crash text with its scripts, snapshots of several ranks, or a program to run.

    Raises:
        VramdocError: as ``recognise``.
    """
    if len(words) == 1:
        target = recognise(words[0])
        return replace(target, sources=_script_beside(target)) if target.path else target
    if _is_document(words[0]) and all(_is_script(word) for word in words[1:]):
        target = recognise(words[0])
        if target.kind == "crash-text" and not _is_script(words[0]):
            return replace(target, sources=tuple(Path(word) for word in words[1:]))
    if all(Path(word).is_file() and word.endswith(SNAPSHOT_SUFFIXES) for word in words):
        found = [recognise(word) for word in words]
        odd = next((target for target in found if target.kind != "snapshot"), None)
        if odd is not None:
            raise UsageError(
                f"{odd.name} is a {odd.kind} among snapshots", "give one kind at a time"
            )
        paths = tuple(Path(word) for word in words)
        return Target(kind="snapshots", path=None, paths=paths, label=f"{len(paths)} snapshots")
    return command_target(words)


def _is_document(word: str) -> bool:
    """A file that nobody starts: ``python script.py`` is a program, ``crash.log script.py`` is none."""
    path = Path(word)
    startable = path.suffix.lower() in {".exe", ".bat", ".cmd"} or os.access(path, os.X_OK)
    return path.is_file() and (not startable or path.suffix.lower() in TEXT_SUFFIXES)


def _is_script(word: str) -> bool:
    return word.endswith(".py") and Path(word).is_file()


def _script_beside(target: Target) -> tuple[Path, ...]:
    """``crash.log`` and ``crash.py`` in one folder belong together."""
    if target.kind != "crash-text" or target.path is None or target.path.suffix == ".py":
        return ()
    script = target.path.with_suffix(".py")
    return (script,) if script.is_file() else ()


def command_target(argv: Sequence[str]) -> Target:
    """A program that the person typed, named after its script: ``python train.py --lr 1`` is ``train.py``."""
    scripts = [word for word in argv[1:] if word.endswith((".py", ".sh"))]
    return Target(
        kind="command",
        path=None,
        label=Path(scripts[0] if scripts else argv[0]).name,
        sources=tuple(Path(word) for word in scripts[:1] if _is_script(word)),
    )


def _folder_kind(path: Path) -> str:
    if (path / "manifest.json").is_file():
        return "recording"
    if any(path.glob("rank-*/manifest.json")):
        return "recording"
    if (path / "config.json").is_file() or any(path.glob("*.safetensors*")):
        return "model-folder"
    raise UnreadableInput(
        f"{path.name or path} holds neither config.json nor safetensors files nor a recording's manifest.json",
        f"give {KINDS}",
    )


def _file_kind(path: Path, head: bytes) -> str:
    suffix = path.suffix.lower()
    if suffix == ".safetensors" or _is_safetensors(head):
        return "model"
    if head[:1] == b"\x80" or head[:2] == b"\x1f\x8b" or suffix in {".pickle", ".pkl"}:
        return _pickle_kind(path, head)
    if head[:2] == b"PK":
        raise UnreadableInput(
            f"{path.name} is a zip file, probably a torch.save checkpoint, which is not opened because reading one runs code",
            "convert it to .safetensors, or record your script: vramdoc record -- python your_script.py",
        )
    if head[:4] == b"GGUF":
        raise UnreadableInput(
            f"{path.name} is a GGUF file, which PyTorch does not load",
            "give the .safetensors it was made from",
        )
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{":
        return _json_kind(path, head)
    if b"MemoryViz" in head or b"snapshot.pickle" in head:
        return "snapshot"
    return "crash-text"


def _is_safetensors(head: bytes) -> bool:
    """Eight bytes of length, then a JSON object (safetensors format)."""
    if len(head) < 10:
        return False
    length = int.from_bytes(head[:8], "little")
    return 2 <= length <= 100_000_000 and head[8:9] == b"{" and head[:1] not in {b"{", b"["}


def _pickle_kind(path: Path, head: bytes) -> str:
    if path.suffix.lower() in {".pt", ".pth", ".bin", ".ckpt"} and head[:2] == b"\x80\x02":
        raise UnreadableInput(
            f"{path.name} is an old torch.save checkpoint, which is not opened because reading one runs code",
            "convert it to .safetensors",
        )
    return "snapshot"


def _json_kind(path: Path, head: bytes) -> str:
    if path.name.endswith(".index.json") or re.search(rb'"weight_map"\s*:', head):
        return "model"
    if re.search(rb'"(segments|device_traces)"\s*:', head):
        return "snapshot"
    if path.suffix.lower() == ".json" and path.stat().st_size <= _LARGEST_JSON:
        try:
            keys = sorted(json.loads(path.read_bytes()))[:5]
        except (ValueError, RecursionError, TypeError):
            return "crash-text"
        if {"segments", "device_traces"} & set(keys):
            return "snapshot"
        raise UnreadableInput(
            f"{path.name} is JSON, but neither an allocator snapshot nor a weight index (keys: {', '.join(map(str, keys))})",
            f"give {KINDS}",
        )
    return "crash-text"
