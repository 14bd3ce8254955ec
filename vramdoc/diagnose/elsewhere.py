"""Failures that are recognised and are no shortage of memory: what each one is, in a sentence. They are nobody's verdict.

It says what an error is, not what in the program caused it.
"""

from __future__ import annotations

from vramdoc.crashlog.incident import CrashLog, Incident

_SENTENCES = {
    "kernel-resources": "A kernel asks for more {resource} than one multiprocessor has ({required} against {limit}): its block sizes or stages are too large for this GPU. That is on-chip memory, not VRAM",
    "misaligned-address": "A kernel used a misaligned address: a fault in the kernel or in the view that it was given, not a shortage",
    "launch-failure": "A kernel failed while it ran (a bad address or an assert inside it), which no amount of memory changes",
    "launch-timeout": "The display driver ended a kernel that ran too long on a GPU with a screen: a time limit, not a memory limit",
    "ecc": "The GPU reports a memory error that it cannot correct: a hardware fault, whatever was free",
    "no-device": "The program sees no GPU at all: a question of driver, container or CUDA_VISIBLE_DEVICES, not of memory",
    "device-ordinal": "A device number was used that this process does not have (CUDA_VISIBLE_DEVICES renumbers them): not a question of memory",
    "collective-timeout": "A collective waited in vain for another rank, which is slow, gone or at another call: look at what the other ranks print first",
    "illegal-access": "A kernel read or wrote outside its tensors: a fault in a kernel or in its indices, which surfaces at some later call. Run once with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to find the call",
    "cusolver": "cuSOLVER refused the call ({status}). Without an out-of-memory error before it that is a fault of its input (NaN, a singular matrix) or of mixed libraries",
    "driver-error": "The driver refused a call ({what}), which is no out-of-memory error",
}
"""By wording for kind ``elsewhere``, by kind for the others. No full stop, since the answer ends with its own."""


def elsewhere(log: CrashLog) -> str:
    """What the failure is, where it is one of these and nothing else was recognised; else empty."""
    sentences = [_sentence(incident) for incident in log.incidents]
    if not sentences or not all(sentences):
        return ""
    return f"{sentences[0]}. No rule here sees a memory problem in it."


def _sentence(incident: Incident) -> str:
    name = incident.wording if incident.kind == "elsewhere" else incident.kind
    readings = {key: reading.text for key, reading in incident.readings.items()}
    return _SENTENCES.get(name, "").format(**readings)
