"""resize-not-resizable: a tensor should grow whose memory PyTorch does not own."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.crashlog.incident import CrashLog, Incident
from vramdoc.diagnose.answers import (
    THE_ERROR,
    cite,
    confirmed,
    derived,
    quote,
    ruled_out,
    text_is_silent,
    undecided,
)
from vramdoc.diagnose.code_lines import base_name
from vramdoc.diagnose.ragged import growing_line, is_bare, is_ragged
from vramdoc.diagnose.rule import Rule
from vramdoc.diagnose.verdict import Confidence, Verdict
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source
from vramdoc.units import format_bytes

ID = "resize-not-resizable"
_ORIGINS = (
    # (literals in a visible line of code, where the buffer then comes from); failure-pattern catalogue 1.3
    (("pin_memory(",), "pin_memory() builds its buffer outside PyTorch's allocator, in a size of its own; torch 1.0 failed so on tensors without elements (pytorch#15770)"),
    (("from_numpy(", "torch.as_tensor(", "torch.asarray("), "from_numpy and as_tensor share NumPy's buffer"),
    ((".numpy()", "np.asarray("), "handing a tensor to NumPy freezes its storage for good, even after the array is gone: hand over a clone"),
    (("frombuffer(",), "frombuffer shares the buffer of the bytes object"),
    (("memmap(", "from_file(", "mmap=True"), "the storage is mapped from a file"),
    (("safe_open(", "load_file(", "get_tensor("), "safetensors on the CPU hands out views of the mapped file"),
    (("assign=True",), "load_state_dict(assign=True) puts the checkpoint's own buffers into the model"),
    (("torch.load(", "torch.jit.load(", "torch.export.load("), "torch.load on the CPU hands out the file reader's buffers, with or without mmap"),
    (("from_dlpack(",), "the buffer belongs to the library that exported it (DLPack)"),
    (("share_memory_(", "Queue(", "queue.get("), "the storage lies in memory that processes share"),
)  # fmt: skip
_NEAR_MISSES = {
    "requires-grad": "autograd's guard, the storage may be fine: resize a detached copy, not a parameter",
    "forward-grad": "forward-mode AD forbids it: work out of place",
    "leaf-in-place": "an in-place operation on a leaf that requires grad: use torch.no_grad() or a detached tensor",
    "out-autograd": "out= does not support autograd: detach the inputs",
    "inference-tensor": "an inference-mode tensor is changed outside inference mode: clone it there, or stay in one mode",
    "negative-strides": "as_strided got negative strides",
    "storage-offset": "a negative storage offset was given",
    "other-device": "set_ was given a storage of another device: copy instead",
    "functionalization": "export or compile tracing forbids growing a view: work out of place",
    "vmap": "vmap cannot resize a batched tensor: work out of place",
    "quantized": "quantized tensors resize only with per-tensor schemes: make a new tensor",
    "sparse": "sparse tensors cannot be resized this way: make a new one",
    "nested": "nested tensors have no sizes to change",
    "deprecated-resize": "the deprecated Tensor.resize can only reshape: use reshape or a new tensor",
    "detached": "old releases forbid resizing through .data or .detach(): use torch.no_grad()",
    "named": "old releases forbid resizing named tensors: rename(None) first",
    "truncated-checkpoint": "the checkpoint is truncated or of another dtype: fetch it again",
    "exotic-device": "this device type has no resize",
    "view": "a view cannot be made of these strides: use reshape",
    "view-shape": "the number of elements does not fit the shape; nothing is resized",
    "out-of-bounds-view": "a view would exceed its storage; no growth was tried",
}


def judge(case: Case) -> Verdict:
    """Confirm the message unless it comes from a batch of unequal samples."""
    recorded = _recorded(case)
    if recorded is not None:
        return recorded
    log = case.crash
    if log is None:
        return ruled_out(ID, "No resize failed.")
    if near := log.first("resize-near-miss", "out-of-bounds-view"):
        return _near_miss(near)
    incident = log.first("resize")
    if incident is None:
        if text_is_silent(case):
            return undecided(ID, "The text holds no error that is known here.", [THE_ERROR])
        return ruled_out(ID, "No resize failed.")
    if is_ragged(log):
        return ruled_out(
            ID,
            "The message comes from a DataLoader worker's batch of unequal samples.",
            [quote(incident)],
        )
    if is_bare(log):
        return undecided(
            ID,
            "A tensor should grow whose memory PyTorch does not own; the text does not show which. Most likely it is a DataLoader's batch.",
            ["the traceback above the message"],
            evidence=[quote(incident)],
            notes=[_ZOMBIE],
        )
    return _from_text(log, incident)


def _recorded(case: Case) -> Verdict | None:
    manifest = case.manifest
    seen = [o for o in manifest.observations if o.kind == "resize"] if manifest is not None else []
    if not seen:
        return None
    detail = seen[-1].detail
    owned, wanted = detail.get("owned_bytes"), detail.get("wanted_bytes")
    sizes = (
        f" from {format_bytes(owned)} to {format_bytes(wanted)}"
        if isinstance(owned, int) and isinstance(wanted, int)
        else ""
    )
    place = (
        f" at {detail['file']}:{detail['line']}"
        if detail.get("file") and detail.get("line")
        else ""
    )
    evidence = [
        Fact(
            "operation",
            str(detail.get("operation", "resize")),
            "text",
            Source.READ,
            f"recorder's guard{place}",
        )
    ]
    evidence += [
        derived(name, value, "recorder's guard")
        for name, value in (("owned", owned), ("wanted", wanted))
        if isinstance(value, int)
    ]
    origin = _origin(detail.get("origin"))
    if origin:
        evidence.append(Fact("origin", origin, "text", Source.READ, "address map of the process"))
    return confirmed(
        ID,
        f"{detail.get('operation', 'An operation')} should grow a tensor{sizes}{place}, but PyTorch does not own its memory{f': it is {origin}' if origin else ''}.",
        evidence,
        notes=[_ZOMBIE],
    )


def _origin(origin: object) -> str:
    """Where the buffer comes from, as the recorder's guard found it."""
    if not isinstance(origin, dict):
        return ""
    kind, path = origin.get("kind"), origin.get("path")
    words = {
        "file": "mapped from a file",
        "shared": "shared memory",
        "numpy": "a NumPy buffer",
        "checkpoint": "a loaded checkpoint",
    }
    text = words.get(str(kind), str(kind or ""))
    return f"{text} ({base_name(str(path))})" if path else text


_ZOMBIE = "Do not go on with that tensor: after the failed call its shape is changed and its bytes are not, so later reads can crash."


def _near_miss(near: Incident) -> Verdict:
    name = near.wording if near.kind == "resize-near-miss" else near.kind
    evidence = [quote(near)]
    more = ""
    if "needed" in near.readings and "owned" in near.readings:
        lacking = int(near.readings["needed"].value) - int(near.readings["owned"].value)
        more = f"; {lacking} bytes are lacking"
        evidence += [cite(near.readings["needed"]), cite(near.readings["owned"])]
    return ruled_out(
        ID,
        f"This is another error: {_NEAR_MISSES.get(name, 'no storage was to grow')}{more}.",
        evidence,
    )


def _from_text(log: CrashLog, incident: Incident) -> Verdict:
    sink = growing_line(log)
    return confirmed(
        ID,
        "A tensor should grow whose memory PyTorch does not own: it came from a file, a checkpoint, NumPy, shared memory or another process, and such a storage has no allocator. "
        "This is not a question of GPU memory.",
        [
            quote(incident),
            *_warned(log),
            *([sink.fact("growing_line")] if sink else []),
        ],
        confidence=Confidence.HIGH,
        notes=(*_sources(log, sink.source if sink else ""), _ZOMBIE),
    )


def _warned(log: CrashLog) -> Iterator[Fact]:
    if warning := log.first("out-resized"):
        yield cite(warning.readings["had"], "buffer_shape")
        yield cite(warning.readings["needed"], "needed_shape")


def _sources(log: CrashLog, sink: str) -> Iterator[str]:
    """What the text tells about buffer and operation, most telling first (catalogue 1.7)."""
    if log.first("out-resized"):
        yield "The warning before it names the operation's out= buffer: give it the needed shape, or let the operation allocate."
    if "quantization" in log.signs:
        yield "Frames of torch.ao.quantization: observer buffers were loaded with assign=True; load without it, or clone the buffers."
    if "checkpoint-load" in log.signs:
        yield (
            "It happens while a checkpoint is loaded. If that was written by a sharded run (FSDP, ZeRO) without the full state dict, its flattened tensors do not fit a plain module: save the full state dict again, "
            "or load it through the same sharded setup."
        )
    elif "fsdp" in log.signs or "distributed" in log.signs:
        yield "Frames of torch.distributed: FSDP frees and re-allocates storages, which fails for one that it does not own."
    for literals, origin in _ORIGINS:
        if any(literal in line for line in (*log.source_lines, *log.code) for literal in literals):
            yield f"A visible line explains the buffer: {origin}."
            break
    if sink:
        yield f"The growing operation is: {sink}"
    if log.frames and not {"dataloader-worker", "collate"} & log.signs.keys():
        yield "No DataLoader worker is in the traceback, so this is not the batch of unequal samples."


RULE = Rule(
    id=ID,
    title="A tensor should grow that PyTorch does not own",
    meaning=(
        "resize_, set_ or an out= argument needs more bytes than a storage has, and the storage was built around somebody else's buffer: NumPy, a mapped or loaded file (torch.load and safetensors on the CPU, with or without mmap), "
        "shared memory, DLPack, another process. Being a view is not the reason; views of ordinary tensors grow."
    ),
    how_decided=(
        "The message itself, unless a DataLoader worker or its collate function is in the traceback (then ragged-batch). Twenty near misses of the message are matched first, because they have other fixes. "
        "In a recording the guard names the operation, the bytes and the file behind the buffer."
    ),
    not_to_confuse_with="ragged-batch; kv-growth: a cache that overflows shows as an index error or a lost token, never as this message.",
    remedies=(
        "RX-FULLSTATE",
        "RX-NOASSIGN",
        "RX-CLONE",
        "RX-PREALLOC",
        "RX-EXPORTCOPY",
        "RX-NOSHMGROW",
        "RX-ZOMBIE",
    ),
    references=("aten/src/ATen/native/Resize.cpp", "pytorch#170298", "failure-pattern catalogue 1"),
    judge=judge,
)
