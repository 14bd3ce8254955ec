"""Out-of-memory messages that carry figures: CUDA, HIP, XPU, NPU and MPS allocators and the cudaMallocAsync backend.

Figures are found by their own phrases behind the head of a message, never by position, so order, line breaks, escaped
newlines, prefixes and a cut-off end do not matter. Sources: the templates in c10/cuda/CUDACachingAllocator.cpp of torch 1.0 to
2.15, c10/xpu/XPUCachingAllocator.cpp, aten/src/ATen/mps/MPSAllocator.mm and c10/cuda/CUDAMallocAsyncAllocator.cpp.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vramdoc.crashlog.incident import Incident, Reading
from vramdoc.crashlog.readings import reading
from vramdoc.crashlog.sizes import GAP, NO_ANSWER, OPTIONAL_GAP, SIZE

_EXTENT = 12_000
"""Longer than any real message (250 processes at 45 characters, both hints); bounds the work on hostile text."""
_HINT = 700
"""Both of torch 2.15's hints together stay below this."""


@functools.cache
def _phrase(text: str) -> re.Pattern[str]:
    """A pattern of words with any gap between them; ``{size}`` is the figure, ``:`` stands loosely.

    Compiled when a message of its family is read: all of them at import would cost each start 5 ms.
    """
    pattern = text.replace("{size}", f"(?P<size>{SIZE})").replace(
        " : ", f"{OPTIONAL_GAP}:{OPTIONAL_GAP}"
    )
    return re.compile(pattern.replace(" ", GAP))


_Fields = Mapping[str, str]
"""Name of a figure to its phrase."""

_PARENTHESIS: _Fields = {  # torch 1.0 to 2.0: "(GPU 0; T total capacity; ...)"
    "total": "{size} total capacity",
    "allocated": "{size} already allocated",
    "free": "{size} free(?=[;)])",
    "allowed": "{size} allowed(?=[;)])",
    "cached": r"{size} cached\b",
    "reserved": "{size} reserved in total by PyTorch",
}
_SENTENCES: _Fields = {  # torch 2.1 and later; "capacty" is 2.1's own spelling
    "total": "has a total capaci?ty of {size}",
    "free": "of which {size} is free",
    "process": "this process has {size} memory in use",
    "allowed": "{size} allowed(?=;)",
    "allocated": "Of the allocated memory {size} is allocated by PyTorch",
    "private_pools": "{size} allocated in private pools",
    "unallocated": "{size} is reserved by PyTorch but unallocated",
}
_ASYNC: _Fields = {
    "allocated": "Currently allocated : {size}",
    "requested": "Requested : {size}",
    "total": "Device limit : {size}",
    "free": r"Free \(according to CUDA\) : {size}",
    "allowed": r"PyTorch limit \(set by user-supplied memory fraction\) : {size}",
}
_MPS: _Fields = {
    "allocated": "MPS allocated : {size}",
    "other_allocations": "other allocations : {size}",
    "allowed": "max allowed : {size}",
    "requested": "Tried to allocate {size}",
}
_POLICY: _Fields = {"requested": "Requested size : {size}"}

_IS_SENTENCES = "has a total|Of the allocated memory"
_PROCESS = "Process (?P<pid>[0-9]{1,10}) has {size} memory in use"
# torch 2.3 prints the device index as a raw byte (allocator-spec 9.1)
_DEVICE = re.compile(
    rf"\b(?:GPU|NPU|XPU){GAP}(?P<device>[0-9]{{1,3}}|[\x00-\x08]|\\u000[0-8])(?=;|{GAP}has\b)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """How one family of messages begins. ``anchor`` is a literal in all of them: ``head`` runs over no text without it."""

    kind: str
    anchor: str
    head: str
    fields: _Fields


_FAMILIES = (
    _Family(
        kind="mps-oom",
        anchor="MPS backend",
        head=rf"MPS{GAP}backend{GAP}out{GAP}of{GAP}memory"
        rf"(?:[^)]{{0,400}}\)\.{GAP}Tried{GAP}to{GAP}allocate{GAP}(?P<requested>{SIZE}))?",
        fields=_MPS,
    ),
    _Family(
        kind="async-oom",
        anchor="would exceed allowed",
        head=r"Allocation on device (?:(?P<device>\S{1,3}) )?would exceed allowed memory",
        fields=_ASYNC,
    ),
    _Family(
        kind="cuda-oom",
        anchor="preemptively",
        head=rf"(?:(?P<backend>[A-Z]{{2,5}}){GAP}out{GAP}of{GAP}memory\.{GAP})?"
        rf"Allocation{GAP}was{GAP}preemptively{GAP}rejected",
        fields=_POLICY,
    ),
    _Family(
        kind="cuda-oom",
        anchor="Tried",
        head=rf"(?:(?P<backend>[A-Z]{{2,5}}){GAP}out{GAP}of{GAP}memory\.?{GAP}|(?P<ceiling>size{GAP}larger{GAP}than{GAP}4GB!{GAP}))?"
        rf"Tried{GAP}to{GAP}allocate{GAP}(?:(?P<requested>{SIZE})|(?P<overflow>more{GAP}than{GAP}1EB))",
        fields=_SENTENCES,
    ),
)
ANCHORS = tuple(family.anchor for family in _FAMILIES)

ERAS = (
    # (a sign in the message, first release, last release), allocator-spec 9.1; the first sign found decides
    ("preemptively rejected", "2.12", ""),
    ("expandable_segments_reserve", "2.15", ""),
    ("optimizing-memory-usage-with-pytorch", "2.11", ""),
    ("PYTORCH_ALLOC_CONF=", "2.10", "2.10"),
    ("allocated in private pools", "2.4", ""),
    ("has a total capacty", "2.1", "2.1"),
    ("has a total capacity", "2.2", ""),
    ("If reserved memory is >> allocated memory", "1.10", "2.0"),
    ("reserved in total by PyTorch", "1.4", "2.0"),
    (" cached", "1.0", "1.3"),
)


def read_oom_messages(text: str) -> Iterator[Incident]:
    """Yield every message with its readings; offsets are those of ``text``."""
    found = sorted(
        (match.start(), index, match)
        for index, family in enumerate(_FAMILIES)
        if family.anchor in text
        for match in re.finditer(family.head, text)
    )
    done = 0
    for number, (start, index, match) in enumerate(found):
        if start < done:
            continue  # "Tried to allocate" inside a message about MPS
        done = match.end()
        behind = (other for other, _, _ in found[number + 1 :] if other >= done)
        stop = min(next(behind, len(text)), done + _EXTENT)
        yield _read(text, match, _FAMILIES[index], stop)


def _read(text: str, match: re.Match[str], family: _Family, stop: int) -> Incident:
    fields = family.fields
    if fields is _SENTENCES and not _phrase(_IS_SENTENCES).search(
        text, match.end(), min(stop, match.end() + 200)
    ):
        fields = _PARENTHESIS
        stop = text.find(")", match.end(), stop) + 1 or stop
    readings = _readings(text, match, fields, stop)
    end = max([match.end(), *(reading.end for reading in readings.values())])
    hint = text[end : min(end + _HINT, len(text))].split("\n", 1)[0]
    message = text[match.start() : end]
    groups = match.groupdict()
    # Intel's extension prints its ceiling for one block instead of the backend's name
    backend = "XPU" if groups.get("ceiling") else groups.get("backend")
    return Incident(
        kind="xpu-oom" if backend == "XPU" else family.kind,
        wording=_wording(family.kind, backend, message + hint),
        readings=readings,
        start=match.start(),
        end=end + len(hint),
        text=message + hint,
    )


def _readings(text: str, match: re.Match[str], fields: _Fields, stop: int) -> dict[str, Reading]:
    readings = {}
    for name, phrase in fields.items():
        if found := _phrase(phrase).search(text, match.start(), stop):
            readings[name] = reading(name, found["size"], found.start("size"))
    if fields is _SENTENCES:
        for number, found in enumerate(
            _phrase(_PROCESS).finditer(text, match.end(), stop), start=1
        ):
            readings[f"pid_{number}"] = reading("pid", found["pid"], found.start("pid"))
            readings[f"process_{number}"] = reading("process", found["size"], found.start("size"))
    for name in ("requested", "overflow", "device"):
        if group := match.groupdict().get(name):
            readings[name] = reading(name, group, match.start(name))
    if "device" not in readings and (found := _DEVICE.search(text, match.end(), stop)):
        readings["device"] = reading("device", found["device"], found.start("device"))
    return {name: _without_answer(name, value) for name, value in readings.items()}


def _without_answer(name: str, value: Reading) -> Reading:
    """2**64 bytes say that nobody knew; the text stays, the number goes."""
    if (
        isinstance(value.value, int)
        and value.value >= NO_ANSWER - value.tolerance
        and value.tolerance
    ):
        return Reading(
            name=name, value=value.text, start=value.start, end=value.end, text=value.text
        )
    return value


def _wording(kind: str, backend: str | None, message: str) -> str:
    era = next(
        ((first, last) for sign, first, last in ERAS if sign in " ".join(message.split())), None
    )
    if kind in {"mps-oom", "async-oom"} or era is None:
        return kind.removesuffix("-oom")
    return f"{(backend or 'cuda').lower()}-{era[0]}..{era[1]}"


def releases(wording: str) -> tuple[str | None, str | None]:
    """The oldest and the newest torch release that a wording of this module belongs to."""
    match = re.fullmatch(r"[a-z]+-([0-9.]+?)\.\.([0-9.]*)", wording)
    return (match[1], match[2] or None) if match else (None, None)
