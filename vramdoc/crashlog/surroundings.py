"""What stands around a failure: releases, platform, allocator settings, the traceback, and signs of who was at work.

It collects; that a worker or an engine was at work decides nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vramdoc.crashlog.incident import Reading
from vramdoc.crashlog.readings import reading

_SIGNS: dict[str, tuple[tuple[str, ...], str]] = {
    # name: (literals of which one must be there, expression)
    "dataloader-worker": (("DataLoader worker", "worker.py"), r"DataLoader worker process \d+|_utils[\\/]worker\.py"),
    "collate": (("collate", "elem.new"), r"_utils[\\/]collate\.py|default_collate|elem\.new\(storage\)|\bcollate_fn\b"),
    "vllm": (
        ("vllm", "vLLM", "VLLM", "Vllm", "EngineCore", "gpu_memory_utilization", "GPU memory utilization"),
        r"\b(?:vllm|vLLM|VLLM|Vllm)|EngineCore|gpu_memory_utilization|desired GPU memory utilization",
    ),
    "sglang": (("sglang", "mem-fraction-static"), r"\bsglang\b|--mem-fraction-static"),
    "tgi": (
        ("text_generation_", "warmup model", "max-batch-prefill-tokens"),
        r"text_generation_(?:server|launcher)|Unable to warmup model|--max-batch-prefill-tokens",
    ),
    "vgpu": (("HAMI-core", "4pdvGPU"), r"HAMI-core|4pdvGPU"),
    "deepspeed": (("deepspeed", "launch.py:"), r"\bdeepspeed\b|\[launch\.py:\d+"),
    "fsdp": (("fsdp", "FSDP", "FullyShardedDataParallel", "_flat_param"), r"\b(?:fsdp|FSDP)\b|FullyShardedDataParallel|_flat_param"),
    "distributed": (("distributed", "torchrun", "ProcessGroupNCCL"), r"torch[\\/]distributed[\\/]|torchrun|ProcessGroupNCCL"),
    "quantization": (("quantization",), r"torch[\\/]ao[\\/]quantization"),
    "backward": (("backward(", "autograd"), r"\.backward\(|torch[\\/]autograd[\\/]__init__\.py"),
    "graph-capture": (
        ("aptur", "cudagraph_trees", "graphs.py"),
        r"[Cc]apturing (?:the model for )?(?:CUDA|cuda) ?graphs?|Graph capturing|capture_model|cudagraph_trees|torch[\\/]cuda[\\/]graphs\.py",
    ),
    "graph-capture-time": (
        ("apturing",),
        r"(?P<value>\d\d:\d\d:\d\d)[^\n]{0,120}?[Cc]apturing (?:the model for )?(?:CUDA|cuda) ?graphs?",
    ),
    "graph-capture-done": (("finished", "complete"), r"[Cc]apturing finished|graph capture complete"),
    "bitsandbytes-banner": (("bin ",), r"(?m:^bin \S[^\n]{0,300}bitsandbytes)"),
    "checkpoint-load": (
        ("load_from_checkpoint", "load_state_dict", "torch.load(", "load_file(", "load_checkpoint"),
        r"load_from_checkpoint|load_state_dict|torch\.load\(|load_file\(|load_checkpoint",
    ),
    "sampler-warmup": (("warming up sampler",), r"warming up sampler with \d+ dummy requests"),
    "state-dict-gather": (("Failed to clone() tensor",), r"Failed to clone\(\) tensor with name"),
    "pin-memory": (("pin_memory",), r"pin_memory"),
    "spawn": (("spawn",), r"spawn_main|multiprocessing[\\/]spawn\.py"),
    "library-path": (("LD_LIBRARY_PATH",), r"LD_LIBRARY_PATH"),
    "visible-devices": (("CUDA_VISIBLE_DEVICES",), r"CUDA_VISIBLE_DEVICES[\"']?\]?\s*[=:]\s*[\"']?(?P<value>[\d,]+)"),
}  # fmt: skip

_PLATFORMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("wsl", ("WSL", "/mnt/"), r"microsoft-standard-WSL|\bWSL2?\b|[\"' ]/mnt/[a-z]/"),
    ("windows", (":\\", "WinError", ".dll", "win32", "\\lib\\"), r"\b[A-Za-z]:\\{1,2}\w|\bWinError\b|\.dll\b|\bwin32\b|\\lib\\"),
    ("macos", ("MPS backend", "/opt/homebrew/", "macOS", "/Users/"), r"MPS backend out of memory|/opt/homebrew/|\bmacOS\b|/Users/\w"),
    (
        "linux",
        ("/", ".so"),
        r"[\"' (]/(?:usr|home|root|opt|workspace|data|tmp|venv|content|kaggle)/|\.so\b|dist-packages/",
    ),
)  # fmt: skip
_VERSION = re.compile(
    r"\b(?:py)?torch(?:\s{1,20}version)?(?:\s{0,20}(?:==|[:=]|-)\s{0,20}|\s{1,20})v?(?P<version>[12]\.\d{1,2}\.\d{1,2}(?:\+\w+)?)",
    re.IGNORECASE,
)
_ALLOC_CONF = re.compile(
    r"(?P<name>PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF)[\"']?\]?\s*[=:]\s*[\"']?(?P<value>[a-z_][a-z_0-9]*[:=][^\s\"'`;)]{1,300})"
)
_ADVICE_BEFORE = re.compile(r"(?:try|setting|set|using|via|export\s+the)\s*\Z")
"""The same text inside a hint is advice, no setting."""

_FRAME = re.compile(
    r"^[^\n]{0,40}?File \\?[\"'](?P<file>[^\"'\n]{1,400}?)\\?[\"'], line (?P<line>\d+),?(?: in (?P<function>[\w<>.]{1,120}))?"
    r"(?:[ \t]?\n(?![^\n]{0,40}?File \\?[\"'])(?P<source>[ \t]+[^\n]{1,400}))?",
    re.MULTILINE,
)
_ESCAPED_LINE = re.compile(r"\\n(?=[ \t]|[\w.]{1,80}(?:Error|Exception)\b)")
"""What follows is an indented line or the error itself; in a Windows path it is a folder."""
_NOTEBOOK_FRAME = re.compile(
    r"^File (?P<file>[^\s\"'][^:\n]{1,300}):(?P<line>\d+), in (?P<function>[\w<>.]{1,120})",
    re.MULTILINE,
)
_RICH_FRAME = re.compile(
    r"^[│|\s]{0,4}(?P<file>(?:[A-Za-z]:)?[^\s│\":]{1,300}\.py):(?P<line>\d+)\s*(?:[│|][ \t]*\n[│|]?)?\s*in (?P<function>[\w<>.]{1,120})[^\n]*"
    r"(?:(?:\n(?![^\n]{0,200}\.py:\d)[^\n❱]{0,300}){0,6}\n[│|\s]{0,4}❱ {1,4}\d+ (?:[│|] {0,3})*(?P<source>[^\n]{1,300}?)[ │|]*$)?",
    re.MULTILINE,
)
"""A frame of the library rich: its file and line on one row, the failing line of code marked by an arrow below."""
_NOTEBOOK_LINE = re.compile(
    r"^(?:-{1,80}> ?|[ \t]{2,80})(?:\d{1,5}) (?P<source>[ \t]{0,60}\S[^\n]{0,300})$", re.MULTILINE
)
_PROMPT_LINE = re.compile(r"^(?:>>>|\.\.\.|In \[\d+\]:) (?P<source>[^\n]{1,300})$", re.MULTILINE)
_APART = 1_500
"""Frames of one traceback stand closer than this; more text between them means another traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceback:
    """Frames, outermost first, with the source line of each ("" where none was printed)."""

    start: int
    end: int
    frames: tuple[tuple[str, int, str], ...]
    source_lines: tuple[str, ...]


def signs(text: str) -> dict[str, Reading]:
    """The first appearance of each sign."""
    found = {}
    for name, (anchors, expression) in _SIGNS.items():
        if match := _search(expression, anchors, text):
            group = "value" if "value" in match.re.groupindex else 0
            found[name] = reading(name, match[group], match.start(group))
    return found


def platform(text: str) -> str | None:
    """``wsl``, ``windows``, ``macos`` or ``linux``, where paths or texts give it away."""
    return next(
        (name for name, anchors, expression in _PLATFORMS if _search(expression, anchors, text)),
        None,
    )


def _search(expression: str, anchors: tuple[str, ...], text: str) -> re.Match[str] | None:
    """Search only where a literal makes a match possible: a thousand times faster on text without it."""
    if not any(anchor in text for anchor in anchors):
        return None
    return re.search(expression, text)


def torch_version(text: str) -> str | None:
    """The release as ``2.6.0``, where the text states it."""
    match = _VERSION.search(text) if "torch" in text or "Torch" in text else None
    return match["version"].split("+")[0] if match else None


def alloc_conf(text: str) -> tuple[Reading, Reading] | None:
    """(name of the variable, its value) of the last allocator setting that is no advice."""
    found = None
    for match in _ALLOC_CONF.finditer(text) if "ALLOC_CONF" in text else ():
        if not _ADVICE_BEFORE.search(text[max(0, match.start() - 20) : match.start()]):
            found = (
                reading("variable", match["name"], match.start("name")),
                reading("alloc_conf", match["value"], match.start("value")),
            )
    return found


def tracebacks(text: str) -> list[Traceback]:
    """Every run of frames, in the order of the text."""
    if "\\n" in text:  # a JSON or Rust string; two characters stay two, so that offsets hold
        text = _ESCAPED_LINE.sub(" \n", text)
    patterns = [
        pattern
        for literal, pattern in (("File", _FRAME), ("File", _NOTEBOOK_FRAME), ("❱", _RICH_FRAME))
        if literal in text
    ]
    found = (match for pattern in patterns for match in pattern.finditer(text))
    runs: list[list[re.Match[str]]] = []
    for match in sorted(found, key=lambda m: m.start()):
        if (
            not runs
            or match.start() - runs[-1][-1].end() > _APART
            or "Traceback (most" in text[runs[-1][-1].end() : match.start()]
        ):
            runs.append([])
        runs[-1].append(match)
    return [_traceback(run, text) for run in runs]


def _traceback(run: list[re.Match[str]], text: str) -> Traceback:
    start, end = run[0].start(), run[-1].end()
    if "most recent call first" in text[max(0, start - 200) : start]:
        run.reverse()
    return Traceback(
        start=start,
        end=end,
        frames=tuple((m["file"], int(m["line"]), m["function"] or "") for m in run),
        source_lines=tuple((m.groupdict().get("source") or "").strip() for m in run),
    )


def visible_code(text: str) -> Iterator[str]:
    """Program lines outside tracebacks: notebook cells and ``>>>`` prompts."""
    for pattern in (_NOTEBOOK_LINE, _PROMPT_LINE):
        yield from (match["source"].strip() for match in pattern.finditer(text))
