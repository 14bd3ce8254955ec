"""What the program was doing when the request failed, told from its traceback: loading, the optimizer's step, saving, validating.

Each moment has its own large allocations, so the sentence says what was being made. It is a remark, never a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from vramdoc.crashlog.incident import CrashLog

_LIBRARY = re.compile(r"site-packages|dist-packages|[\\/]lib[\\/]python3")
_VALIDATES = re.compile(r"\A_?(?:run_)?(?:valid|validate|validation|val|eval|evaluate|evaluation)(?:_|\Z)")  # fmt: skip
_LOADS = re.compile(r"\A(?:from_pretrained|load_checkpoint\w*|load_model\w*|set_module_tensor_to_device|dispatch_model|_load_pretrained_model)\Z")  # fmt: skip
_GATHERS = re.compile(r"_state_dict_utils|_full_(?:pre|post)_state_dict_hook")
_SCOPES = ("no_grad", "inference_mode", "decorate_context")
"""Their presence in a traceback says that gradients are off; ``decorate_context`` is the frame of the decorator's form."""


def moment(log: CrashLog) -> Iterator[str]:
    """One sentence, where the traceback (or a warning beside it) shows one of the moments."""
    for holds, sentence in _MOMENTS:
        if holds(log):
            yield sentence
            return


def _warms_the_sampler(log: CrashLog) -> bool:
    return "sampler-warmup" in log.signs


def _gathers(log: CrashLog) -> bool:
    in_frames = any(_GATHERS.search(f"{file} {function}") for file, _, function in log.frames)
    return in_frames or "state-dict-gather" in log.signs


def _makes_optimizer_state(log: CrashLog) -> bool:
    return any(
        "optim" in file and (function == "_init_group" or "zeros_like(" in source)
        for (file, _, function), source in zip(log.frames, log.source_lines, strict=False)
    )


def _steps_in_foreach(log: CrashLog) -> bool:
    innermost = log.frames[-1] if log.frames else ("", 0, "")
    return innermost[2].startswith("_multi_tensor_")


def _loads(log: CrashLog) -> bool:
    if any(_LOADS.match(function) for _, _, function in log.frames):
        return True
    return any(function == "_apply" for _, _, function in log.frames)


def _validates(log: CrashLog) -> bool:
    """A validation of the program's own; those of the well-known trainers turn gradients off."""
    if any(scope in f"{' '.join(log.source_lines)} {_functions(log)}" for scope in _SCOPES):
        return False
    return any(
        _VALIDATES.match(function) and not _LIBRARY.search(file) for file, _, function in log.frames
    )


def _functions(log: CrashLog) -> str:
    return " ".join(function for _, _, function in log.frames)


_MOMENTS: tuple[tuple[Callable[[CrashLog], bool], str], ...] = (
    (_warms_the_sampler, "It fails in vLLM's warm-up of the sampler, after the KV cache has taken its share: as many requests as max_num_seqs allows are sampled at once, so lower max_num_seqs or gpu_memory_utilization."),
    (_gathers, "It fails while FSDP gathers the whole state dict on the device: offload it to the CPU as it is gathered (FullStateDictConfig(offload_to_cpu=True, rank0_only=True)), or save sharded."),
    (_makes_optimizer_state, "It fails while the optimizer makes its state, which happens in the first step only: Adam keeps two tensors of the parameters' size, 8 bytes a parameter in fp32."),
    (_steps_in_foreach, "It fails inside the optimizer's foreach form, which makes temporaries of the parameters' size: foreach=False or fused=True needs less (torch.optim documentation)."),
    (_loads, "It fails while the model is loaded or moved to the device: activations, KV cache and optimizer state would come on top."),
    (_validates, "It fails in a validation of the program's own. No backward pass frees the graph there: without torch.no_grad() every output keeps the activations of its forward pass."),
)  # fmt: skip
