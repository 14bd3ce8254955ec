"""What stands beside a failure: rows of gpustat and nvidia-smi, host memory in use, an engine's KV-cache room, growth that a person reports.

They are circumstances with numbers, no failures. The table has the form of ``wordings``.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.crashlog.incident import Incident
from vramdoc.crashlog.sizes import SIZE
from vramdoc.crashlog.told import read_told
from vramdoc.crashlog.wordings import Wording, matches


def _w(kind: str, name: str, anchor: str, expression: str) -> Wording:
    return Wording(kind=kind, name=name, anchor=anchor, expression=expression, wraps=False)


NEAR = 4_000
"""Characters before a failure in which a counter of steps is looked for."""

OBSERVATIONS: tuple[Wording, ...] = (
    _w("gpu-row", "gpustat", " MB", r"^\s{0,4}\[(?P<device>\d{1,2})\] (?P<name>[^|\n]{3,60}?)\s*\|[^|\n]{0,40}?(?P<utilization>\d{1,3}) ?%[^|\n]{0,30}\|\s*(?P<used_mib>\d+) / (?P<total_mib>\d+) MB"),
    _w("gpu-row", "nvidia-smi", "MiB /", r"^[ \t]{0,8}\|\s+(?P<device>\d{1,2})\s+(?P<name>[^|\n]{3,60}?)\s+(?:On|Off|WDDM|TCC|N/A)\s*\|[^\n]{0,100}\n[ \t]{0,8}\|[^|\n]{0,60}\|\s*(?P<used_mib>\d+)MiB\s*/\s*(?P<total_mib>\d+)MiB\s*\|\s*(?P<utilization>\d{1,3})%"),
    _w("gpu-process", "nvidia-smi", "MiB |", r"^[ \t]{0,8}\|\s+(?P<device>\d{1,2})\s+(?:\S+\s+\S+\s+)?(?P<pid>\d+)\s+(?P<type>C|G|C\+G|M\+C)\s+(?P<program>[^|\n]{1,80}?)\s+(?P<used_mib>\d+)MiB \|"),
    _w("process-table", "nvidia-smi", "Processes:", r"^[ \t]{0,8}\|\s*Processes:"),
    _w("memory-use", "logged", "em", rf"\b(?:(?:GPU|CUDA|cuda|gpu)[ _]?)?(?:[Mm]em(?:ory)?|max_mem|MEM)(?:[ _](?:allocated|alloc|usage|used|in use))?\s{{0,3}}[:=]\s{{0,3}}(?P<used>{SIZE})"),
    _w("memory-use", "bytes", "memory", r"\bmemory[ _](?:allocated|reserved)\s{0,3}[:=]\s{0,3}(?P<used_bytes>\d{7,14})(?=[\s,\\]|$)"),
    _w("memory-use", "metric-logger", "mem: ", r"\bmax[ _]mem: (?P<used_mib>\d{2,7})M?(?=[\s,\\]|$)"),
    _w("memory-use", "runner", "memory: ", r"[,\s]memory: (?P<used_mib>\d{2,7})(?=,|\s{2}|\s*$)"),
    _w("memory-use", "deepspeed", "MA ", r"\bMA (?P<used_gib>[\d.]+) GB"),
    _w("host-use", "deepspeed", "CPU Virtual Memory", r"CPU Virtual Memory:\s+used = (?P<used_gib>[\d.]+) GB, percent = (?P<percent>[\d.]+)%"),
    _w("kv-room", "vllm-blocks", "GPU blocks", r"# (?:GPU|cuda) blocks: (?P<blocks>\d+)"),
    _w("kv-room", "vllm-tokens", "KV cache size", r"GPU KV cache size: (?P<tokens>[\d,]+) tokens"),
    _w("kv-room", "vllm-memory", "Available KV cache memory", rf"Available KV cache memory: (?P<available>{SIZE})"),
)  # fmt: skip
PROGRESS: tuple[Wording, ...] = (
    _w("progress", "iteration", "", r"\b(?:iter(?:ation)?|step|global_step)\b[ =:]{1,3}(?P<iteration>\d{1,9})\b"),
    _w("progress", "abbreviated", "it", r"[\[(,] {0,2}it[ =:]{1,3}(?P<iteration>\d{1,9})(?=[,\])/])"),
    _w("progress", "tqdm", "it", r"\d{1,3}%\|[^|\n]{0,80}\| (?P<iteration>\d+)/\d+ \["),
)  # fmt: skip


def read_observations(text: str, *, before: int) -> Iterator[Incident]:
    """Yield every observation; offsets are those of ``text``. Of a counter only the values shortly before ``before`` count."""
    yield from matches(OBSERVATIONS, text)
    yield from read_told(text)
    yield from matches(PROGRESS, text, start=max(0, before - NEAR), stop=before)
