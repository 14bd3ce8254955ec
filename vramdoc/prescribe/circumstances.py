"""What decides whether a remedy fits a case: platform, release, backend, settings in force, who is at work. Named conditions, no remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vramdoc.diagnose.growing import is_cache
from vramdoc.diagnose.kept import keepers
from vramdoc.diagnose.script_signs import SETTING_LATE, violation
from vramdoc.diagnose.settings import entries, release_of
from vramdoc.diagnose.shortage import Situation, shortage
from vramdoc.diagnose.vendors import NVIDIA, vendor
from vramdoc.evidence.case import Case
from vramdoc.evidence.siblings import sibling_ranks
from vramdoc.prescribe.engines import engine_at_work
from vramdoc.record.environment import ALLOC_CONF_NAMES
from vramdoc.record.holders import HolderKind

if TYPE_CHECKING:
    from vramdoc.evidence.holders import Held

FIRST_OPTIONS = (1, 10)
"""max_split_size_mb, the first option against holes (pytorch#44742)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The facts that conditions look at."""

    platform: str | None
    """``linux``, ``windows``, ``wsl``, ``macos``, or None where nothing shows it."""
    release: tuple[int, int] | None
    """The torch release, else the newest one that prints the wording."""
    oldest_release: tuple[int, int] | None
    variable: str
    """The variable that a visible setting stands in, else empty."""
    is_rocm: bool
    backend: str
    """``cuda``, ``async``, ``xpu``, ``mps``."""
    is_nvidia: bool
    is_gpu_of_cuda: bool
    """PyTorch's caching allocator for CUDA or ROCm, which the options are for."""
    settings: Mapping[str, str]
    """Allocator options in force or visible."""
    signs: frozenset[str]
    situation: Situation | None
    requested: int | None
    is_too_large: bool
    """The request is larger than the device, or not even printable."""
    is_spilled: bool
    """The pool is larger than the device, so the driver uses host memory."""
    siblings: int
    """Ranks of one job that the message lists on one device."""
    has_limit: bool
    pending: bool
    is_segfault: bool
    set_late: bool
    """A setting was made after the allocator had read its variable."""
    set_in_vain: str | None
    """That setting, where a recording holds it."""
    collects: bool
    """A tensor is concatenated onto that is no KV cache."""
    keepers: frozenset[str] | None
    """How what leaks is kept (``HolderKind``); None where the program was not asked."""
    mps_others_lead: bool
    """On a Mac: what others hold is more than what PyTorch does."""
    has_no_cache_left: bool
    """An engine found no room for its cache at all."""
    host: frozenset[str]
    """Which of the host's stores ran out: ``shared-memory``, ``commit-limit``, ``pinned``, ``memory``."""


def circumstances(case: Case) -> Circumstances:
    """Look a case over."""
    log, manifest, found = case.crash, case.manifest, shortage(case)
    snapshot = case.oom_snapshot or case.snapshot
    version = manifest.versions.get("torch") if manifest is not None else None
    newest = version or (log.torch_version or log.torch_at_most if log is not None else None)
    conf = (
        manifest.alloc_conf
        if manifest is not None
        else (log.alloc_conf or "" if log is not None else "")
    )
    if not conf and snapshot is not None:
        conf = snapshot.alloc_conf
    backend = case.oom.extra.get("backend") if case.oom is not None else None
    variable = log.signs.get("alloc-conf-variable") if log is not None else None
    pending = case.oom.extra.get("pending") if case.oom is not None else None
    in_vain = _set_in_vain(case)
    kind = str(backend.value) if backend is not None else "cuda"
    is_rocm = "HIP" in (case.oom.text if case.oom is not None else "") or bool(
        manifest and manifest.versions.get("rocm")
    )
    is_nvidia = vendor(case) is NVIDIA and not is_rocm
    return Circumstances(
        platform=_platform(case),
        release=release_of(newest),
        oldest_release=release_of(
            version or (log.torch_version or log.torch_at_least if log is not None else None)
        ),
        variable=_variable_in_use(case) or (variable.text if variable is not None else ""),
        is_rocm=is_rocm,
        is_nvidia=is_nvidia,
        is_gpu_of_cuda=kind == "cuda" and (is_nvidia or is_rocm),
        backend=kind,
        settings=entries(conf),
        signs=frozenset(log.signs if log is not None else ()) | _workload_signs(case),
        situation=found.situation if found is not None else None,
        requested=found.balance.requested if found is not None else None,
        is_too_large=(found is not None and found.situation is Situation.TOO_LARGE)
        or (case.oom is not None and "overflow" in case.oom.extra),
        is_spilled=found is not None
        and (found.balance.reserved or 0) > (found.balance.total or found.balance.reserved or 0),
        siblings=sibling_ranks(case),
        has_limit=found is not None and found.balance.allowed is not None,
        pending=pending is not None and bool(pending.value),
        is_segfault=log is not None and log.first("segfault") is not None,
        set_late=in_vain is not None or violation(case, *SETTING_LATE) is not None,
        set_in_vain=in_vain,
        collects=any(not is_cache(part, case) for part in case.regrowth),
        keepers=None
        if case.holders is None
        else frozenset(_how_kept(held) for held in keepers(case)),
        mps_others_lead=_others_lead(case),
        has_no_cache_left=log is not None and log.first("engine-no-kv") is not None,
        host=frozenset(_host_stores(case)),
    )


def _set_in_vain(case: Case) -> str | None:
    """What the environment of a recording says and its snapshot does not, as an allocator setting that was made too late."""
    snapshot = case.oom_snapshot or case.snapshot
    wanted = case.manifest.environment.get(_variable_in_use(case)) if case.manifest else None
    if not wanted or snapshot is None or not snapshot.allocator_settings:
        return None
    return wanted if entries(wanted) != entries(snapshot.alloc_conf) else None


def _others_lead(case: Case) -> bool:
    other = case.oom.extra.get("other_allocations") if case.oom is not None else None
    own = case.oom.allocated if case.oom is not None else None
    return other is not None and own is not None and int(other.value) > int(own.value)


def _host_stores(case: Case) -> Iterator[str]:
    """What of the host ran out, from the wording that says so; RAM where nothing narrower is said."""
    log = case.crash
    if log is not None and log.first("shm-full"):
        yield "shared-memory"
        return
    said = log.first("host-oom") if log is not None else None
    if said is not None and said.wording in {"winerror-1455", "page-file"}:
        yield "commit-limit"
        return
    if log is not None and "pin-memory" in log.signs:
        yield "pinned"
    yield "memory"


def _how_kept(held: Held) -> str:
    """A variable whose graph grows is mended as a container of graphs is."""
    return "graph" if held.holder.graph_bytes and held.kind is HolderKind.FRAME else str(held.kind)


def _platform(case: Case) -> str | None:
    if case.manifest is not None:
        system = case.manifest.platform.get("system", "").lower()
        return {"darwin": "macos"}.get(system, system) or None
    return case.crash.platform if case.crash is not None else None


def _variable_in_use(case: Case) -> str:
    variables = case.manifest.environment if case.manifest is not None else {}
    return next((name for name in ALLOC_CONF_NAMES if name in variables), "")


def _workload_signs(case: Case) -> frozenset[str]:
    """Our own workloads and caches count as signs of generation."""
    manifest = case.manifest
    if manifest is not None and any("kv_bytes" in phase.detail for phase in manifest.phases):
        return frozenset({"generation"})
    log = case.crash
    if log is None:
        return frozenset()
    files = " ".join(f"{file} {function}" for file, _, function in log.frames)
    generates = any(
        word in files
        for word in ("cache_utils", "generation", "generate", "attention", "modeling_")
    )
    trains = "/trainer" in files or "Trainer" in files
    generates = generates or log.first("engine-kv", "engine-no-kv", "cache-overflow") is not None
    return frozenset(
        sign for sign, seen in (("generation", generates), ("trainer", trains)) if seen
    )


def _can_expand(c: Circumstances) -> bool:
    """Whether this platform and release has expandable segments (allocator-spec 4.9)."""
    if not c.is_gpu_of_cuda or c.platform == "macos":
        return False
    if c.platform == "windows":
        return c.oldest_release is not None and c.oldest_release >= (2, 14)
    if c.is_rocm:
        return c.release is None or c.release >= (2, 12)
    return c.release is None or c.release >= (2, 1)


def _has_no_options(c: Circumstances) -> bool:
    """Whether the newest release that prints the wording has no option against holes."""
    return c.release is not None and c.release < FIRST_OPTIONS


CONDITIONS: Mapping[str, Callable[[Circumstances], bool]] = {
    "expandable": lambda c: (
        _can_expand(c)
        and c.settings.get("expandable_segments") != "True"
        and c.settings.get("backend", "native") == "native"
    ),
    "no-expandable": lambda c: not _can_expand(c) or c.platform == "wsl",
    "native": lambda c: c.is_gpu_of_cuda and c.settings.get("backend", "native") == "native",
    "split-unset": lambda c: "max_split_size_mb" not in c.settings,
    "nvidia": lambda c: c.is_nvidia,
    "cuda": lambda c: c.backend in {"cuda", "async"},
    "mps": lambda c: c.backend == "mps",
    "xpu": lambda c: c.backend == "xpu",
    "whole-gpu": lambda c: "vgpu" not in c.signs,
    "shared-gpu": lambda c: "vgpu" in c.signs,
    "mps-others": lambda c: c.mps_others_lead,
    "no-cache-left": lambda c: c.has_no_cache_left,
    "fraction": lambda c: c.has_limit and c.backend == "cuda",
    "large-segments": lambda c: c.oldest_release is not None and c.oldest_release >= (2, 11),
    "too-large": lambda c: c.is_too_large,
    "spilled": lambda c: c.is_spilled,
    "options": lambda c: not _has_no_options(c),
    "no-options": _has_no_options,
    "engine": lambda c: engine_at_work(c.signs) is not None,
    "no-engine": lambda c: engine_at_work(c.signs) is None,
    "training": lambda c: "backward" in c.signs,
    "generation": lambda c: (
        "generation" in c.signs and "backward" not in c.signs and engine_at_work(c.signs) is None
    ),
    "ranks-together": lambda c: c.siblings > 0 or bool({"distributed", "deepspeed"} & c.signs),
    "shared-memory-full": lambda c: "shared-memory" in c.host,
    "commit-limit": lambda c: "commit-limit" in c.host,
    "pinned-memory": lambda c: "pinned" in c.host,
    "host-memory": lambda c: "memory" in c.host,
    "loading": lambda c: "checkpoint-load" in c.signs or "quantization" in c.signs,
    "numpy": lambda c: not {"checkpoint-load", "quantization"} & c.signs,
    "shared-memory": lambda c: c.is_segfault or "spawn" in c.signs,
    "segfault": lambda c: c.is_segfault,
    "pending": lambda c: c.pending,
    "set-late": lambda c: c.set_late,
    "collects": lambda c: c.collects,
    # Where nobody knows what keeps it, the usual reason comes first.
    "keeps-graph": lambda c: not c.keepers or "graph" in c.keepers,
    "keeps-cycle": lambda c: c.keepers is not None and "cycle" in c.keepers,
    "keeps-traceback": lambda c: c.keepers is not None and "traceback" in c.keepers,
    "keeps-container": lambda c: c.keepers is not None and "container" in c.keepers,
    "trainer": lambda c: "trainer" in c.signs,
    "no-trainer": lambda c: "trainer" not in c.signs,
    "many-threads": lambda c: "backward" in c.signs and c.situation is not None,
}
"""Conditions that a remedy's ``needs`` name; all must hold."""
