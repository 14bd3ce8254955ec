"""Reports made by hand, one of each kind: every renderer is run over every one of them."""

from __future__ import annotations

from dataclasses import replace

from vramdoc.diagnose.verdict import Confidence, Outcome, Severity, Verdict
from vramdoc.evidence.attribution import Site
from vramdoc.evidence.callsites import SiteUse
from vramdoc.evidence.case import Case
from vramdoc.evidence.fragmentation import Fragmentation, GroupUse
from vramdoc.evidence.growth import Growth, SiteGrowth
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.evidence.pins import Pin
from vramdoc.evidence.usage import Levels, Usage
from vramdoc.facts import Fact, Source
from vramdoc.prescribe.prescription import Prescription, Verification, VerificationStatus
from vramdoc.record.recording import DeviceInfo, Exit, ExitKind, Manifest
from vramdoc.report.contents import HEALTHY, UNDECIDED, Report
from vramdoc.snapshot.model import BlockInfo, Frame, SegmentInfo, Snapshot

MIB, GIB = 1 << 20, 1 << 30


def read(name: str, value: int, where: str = "message") -> Fact:
    """A size read from a message."""
    return Fact(name, value, "bytes", Source.READ, where)


def verdict(name: str, outcome: Outcome, summary: str, **more: object) -> Verdict:
    """A verdict with the usual severity and confidence."""
    defaults = {"severity": Severity.ERROR, "confidence": Confidence.HIGH}
    return Verdict(id=name, outcome=outcome, summary=summary, **{**defaults, **more})  # type: ignore[arg-type]


def ruled_out(*names: str) -> tuple[Verdict, ...]:
    """Verdicts that say no."""
    return tuple(
        verdict(n, Outcome.RULED_OUT, f"{n} does not explain it.", severity=Severity.INFO)
        for n in names
    )


def striped_snapshot() -> Snapshot:
    """Thirty-two segments of 64 MiB, each with a live block, a hole and a waiting block; a small and a private pool."""
    frames = (
        Frame("/home/alice/project/cache.py", 41, "append"),
        Frame("/home/alice/project/train.py", 9, "main"),
    )
    base, segments = 0x7F0000000000, []
    for index in range(32):
        address = base + index * 64 * MIB
        sizes = (
            (24 + index % 3, "active_allocated"),
            (32 - index % 3, "inactive"),
            (8, "active_pending_free"),
        )
        blocks, offset = [], 0
        for size, state in sizes:
            blocks.append(
                BlockInfo(
                    address=address + offset, size=size * MIB, requested_size=size * MIB - 100,
                    state=state, frames=frames,
                )
            )  # fmt: skip
            offset += size * MIB
        segments.append(_segment(address, blocks, "large"))
    small = base + 40 * 64 * MIB
    segments.append(
        _segment(
            small,
            [_block(small, 1 * MIB, "active_allocated"), _block(small + MIB, MIB, "inactive")],
            "small",
        )
    )
    private = small + 64 * MIB
    segments.append(
        _segment(private, [_block(private, 96 * MIB, "inactive")], "large", pool=(1, 0))
    )
    return Snapshot(
        segments=tuple(segments),
        traces=(),
        allocator_settings={
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "expandable_segments": False,
            "max_split_size": -1,
        },
    )


def _block(address: int, size: int, state: str) -> BlockInfo:
    return BlockInfo(address=address, size=size, requested_size=size, state=state)


def _segment(
    address: int, blocks: list[BlockInfo], kind: str, pool: tuple[int, int] = (0, 0)
) -> SegmentInfo:
    live = sum(b.size for b in blocks if b.state == "active_allocated")
    active = sum(b.size for b in blocks if b.state != "inactive")
    return SegmentInfo(
        device=0, address=address, total_size=sum(b.size for b in blocks), allocated_size=live,
        active_size=active, requested_size=live, stream=0, segment_type=kind,
        segment_pool_id=pool, is_expandable=False, blocks=tuple(blocks),
    )  # fmt: skip


RTX4090 = DeviceInfo(
    kind="virtual", name="NVIDIA GeForce RTX 4090", key="rtx4090", total_bytes=25_393_692_672,
    compute_capability="8.9", multiprocessors=128,
)  # fmt: skip
ENVIRONMENT = {
    "torch": "2.14.1+cu130", "python": "3.11.2", "cuda": "13.0", "system": "Linux", "alloc_conf": "",
    "variables": {"CUDA_VISIBLE_DEVICES": "0"},
    "device": {"kind": "virtual", "name": "NVIDIA GeForce RTX 4090", "total_bytes": 25_393_692_672},
}  # fmt: skip
WORKLOAD = {
    "name": "chat",
    "line": "--workload chat --context 2048 --sessions 4 --seed 0",
    "context": 2048,
}

EXPANDABLE = Prescription(
    id="RX-EXPANDABLE",
    title="Turn on expandable segments",
    change="Let segments grow in place, so that holes of different segments join.",
    serves=("fragmentation",),
    risk="Slightly slower first allocations; not for memory shared between processes.",
    limits="Not on Windows.",
    alloc_conf="expandable_segments:True",
    snippets={
        "bash": "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "powershell": '$env:PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"',
    },
    verification=Verification(
        status=VerificationStatus.VERIFIED, by=Source.VIRTUAL_GPU, method="rerun",
        before={"oom": True, "reserved_peak": 23 * GIB, "active_peak": 16 * GIB},
        after={"oom": False, "reserved_peak": 17 * GIB, "active_peak": 16 * GIB},
    ),
)  # fmt: skip
SPLIT = Prescription(
    id="RX-MAXSPLIT",
    title="Cap the size of blocks that may be split",
    change="Set max_split_size_mb to 128.",
    serves=("fragmentation",),
    risk="More device calls.",
    alloc_conf="max_split_size_mb:128",
    snippets={"bash": "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"},
    verification=Verification(
        status=VerificationStatus.REFUTED, by=Source.REPLAYED, method="replay",
        before={"oom": True, "reserved_peak": 23 * GIB}, after={"oom": True, "reserved_peak": 23 * GIB},
        reason="It still runs out of memory, at the same request.",
    ),
)  # fmt: skip
SMALLER = Prescription(
    id="RX-SMALLER",
    title="Hold fewer conversations at once",
    change="Keep three sessions instead of four.",
    serves=("true-capacity",),
    risk="Fewer users at once.",
    snippets={"python": "serve(model, sessions=3)"},
    verification=Verification(
        status=VerificationStatus.NOT_TRIED, reason="the program is not at hand", command="vramdoc diagnose model.safetensors --sessions 3"
    ),
)  # fmt: skip


def fragmentation() -> Report:
    """Fragmentation with a snapshot, a verified fix and a refuted one."""
    evidence = (
        read("requested", 512 * MIB, "OOM event, trace of device 0"),
        read("largest_hole", 32 * MIB, "segments of snapshot-oom"),
        read("free", 300 * MIB, "OOM event, device_free"),
        Fact("external_over_reserved", 0.468, "ratio", Source.READ, "segments of snapshot-oom"),
        read("external_bytes", 992 * MIB, "segments of snapshot-oom"),
    )
    case = Case(
        kind="recording", name="chat",
        manifest=Manifest(
            created="2026-12-01T10:15:00Z", tool_version="0.1", versions={"torch": "2.14.1+cu130"},
            platform={"system": "Linux"}, alloc_conf="", device=RTX4090, exit=Exit(kind=ExitKind.OUT_OF_MEMORY),
        ),
        oom_snapshot=striped_snapshot(),
        peak_sites=tuple(
            SiteUse(site=Site(f"model{i}.py", 10 + i, "forward"), bytes=(9 - i) * GIB, count=3 * i) for i in range(5)
        ),
        pins=(Pin(site=Site("cache.py", 41, "append"), inactive_bytes=896 * MIB, live_bytes=GIB, segments=32, blocks=32),),
        growth=Growth(
            per_step_bytes=64 * MIB, grown_bytes=640 * MIB, steps=10, period_source="phase 'step'", steps_are_marked=True,
            sites=(SiteGrowth(site=Site("cache.py", 41, "append"), per_step_bytes=64 * MIB, grown_bytes=640 * MIB, count=32, rising_steps=10),),
        ),
        usage=Usage(
            device=0, end=Levels(requested=1, allocated=2, active=3, reserved=4),
            peak=Levels(requested=15 * GIB, allocated=15 * GIB, active=16 * GIB, reserved=23 * GIB),
            device_alloc_calls=311, device_free_calls=12, source=Source.VIRTUAL_GPU, complete=True,
        ),
        fragmentation=Fragmentation(
            device=0, reserved_bytes=2 * GIB, active_bytes=GIB, allocated_bytes=GIB, requested_bytes=GIB,
            pending_bytes=256 * MIB, internal_bytes=3200, inactive_bytes=992 * MIB, returnable_bytes=96 * MIB,
            external_bytes=896 * MIB, private_pool_inactive_bytes=96 * MIB, largest_inactive_bytes=96 * MIB,
            stranded_bytes=None,
            groups=(GroupUse(pool_id=(0, 0), pool="large", stream=0, reserved_bytes=2 * GIB, active_bytes=GIB,
                             inactive_bytes=896 * MIB, returnable_bytes=0, largest_inactive_bytes=32 * MIB),),
        ),
        oom=OomAnatomy(requested=evidence[0], largest_hole=evidence[1], free=evidence[2], total=read("total", RTX4090.total_bytes), device=0),
    )  # fmt: skip
    summary = "512.00 MiB were asked for. 992.00 MiB are free inside PyTorch's segments, but in holes of at most 32.00 MiB."
    return Report(
        target_kind="recording", target_name="chat-fragmented", primary="fragmentation", headline=summary,
        verdicts=(
            verdict("fragmentation", Outcome.CONFIRMED, summary, evidence=evidence, explains_bytes=512 * MIB),
            verdict(
                "foreign-process", Outcome.UNDECIDED, "Nobody looked.", severity=Severity.WARNING,
                confidence=Confidence.LOW, missing=("an NVML reading at the failure",),
            ),
            *ruled_out("true-capacity", "cublas-handle-no-vram", "memory-limit"),
        ),
        prescriptions=(EXPANDABLE, SPLIT), facts=evidence, environment=ENVIRONMENT, workload=WORKLOAD,
        command="vramdoc diagnose chat-fragmented", notes=("cuDNN is off on the virtual GPU.",),
        recording="20261201-101500-chat-4f2a", case=case,
    )  # fmt: skip


def crash_text() -> Report:
    """Only the error's text was at hand."""
    facts = (
        read("requested", 2 * GIB, "crash.log:12"), read("total", 24 * GIB, "crash.log:12"),
        read("free", 512 * MIB, "crash.log:12"), read("process", 22 * GIB, "crash.log:12"),
        read("allocated", 20 * GIB, "crash.log:12"), read("unallocated", GIB, "crash.log:12"),
    )  # fmt: skip
    named = {f.name: f for f in facts}
    return Report(
        target_kind="crash-text", target_name="crash.log", primary="true-capacity",
        headline="2.00 GiB were asked for and 512.00 MiB were free; perfect packing would still lack 512.00 MiB.",
        verdicts=(
            verdict("true-capacity", Outcome.CONFIRMED, "It does not fit.", evidence=facts, explains_bytes=512 * MIB),
            *ruled_out("memory-limit"),
        ),
        prescriptions=(SMALLER,), facts=facts, environment={"torch": "2.6.0"}, command="vramdoc diagnose crash.log",
        case=Case(
            kind="crash-text", name="crash.log",
            oom=OomAnatomy(
                requested=named["requested"], total=named["total"], free=named["free"],
                process=named["process"], allocated=named["allocated"], unallocated=named["unallocated"],
                text="CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB",
            ),
        ),
    )  # fmt: skip


def capacity() -> Report:
    """A model that does not fit, with nothing to try."""
    facts = (
        Fact("weights_bytes", 130 * GIB, "bytes", Source.ESTIMATED, "checkpoint header"),
        Fact("device_total", 80 * GIB, "bytes", Source.ESTIMATED, "GPU catalogue"),
        Fact("short_by", 50 * GIB, "bytes", Source.VIRTUAL_GPU, "phase load"),
    )
    return Report(
        target_kind="model", target_name="llama-3-70b.safetensors", primary="true-capacity",
        headline="The weights alone lack 50.00 GiB on an H100.",
        verdicts=(verdict("true-capacity", Outcome.CONFIRMED, "Full.", evidence=facts, explains_bytes=50 * GIB),),
        prescriptions=(), facts=facts, environment=ENVIRONMENT, workload=WORKLOAD,
        command="vramdoc diagnose llama-3-70b.safetensors --gpu h100",
    )  # fmt: skip


def cublas() -> Report:
    """The handle could not be made; every change that was tried failed."""
    facts = (
        Fact("driver_free", 12 * MIB, "bytes", Source.VIRTUAL_GPU, "observation cublas-handle"),
        Fact("handles", 2, "count", Source.VIRTUAL_GPU, "observations"),
        Fact("new_thread", True, "flag", Source.READ, "traceback"),
    )
    return Report(
        target_kind="recording", target_name="handle", primary="cublas-handle-no-vram",
        headline="cublasCreate found 12.00 MiB free at the driver.",
        verdicts=(verdict("cublas-handle-no-vram", Outcome.CONFIRMED, "No room for the handle.", evidence=facts),),
        prescriptions=(SPLIT,), facts=facts, environment=ENVIRONMENT, workload=WORKLOAD,
    )  # fmt: skip


def resize() -> Report:
    """A tensor that lives in a file."""
    facts = (
        Fact("operation", "resize_", "text", Source.READ, "train.py:12"),
        Fact("origin", "model.safetensors", "text", Source.MEASURED, "/proc/self/maps"),
        read("wanted_bytes", 4000), read("owned_bytes", 64),
    )  # fmt: skip
    return Report(
        target_kind="recording", target_name="resize", primary="resize-not-resizable",
        headline="resize_ wanted 3.91 KiB of a tensor whose 64 B lie in model.safetensors.",
        verdicts=(verdict("resize-not-resizable", Outcome.CONFIRMED, "Mapped file.", evidence=facts, severity=Severity.WARNING),),
        prescriptions=(
            replace(SMALLER, id="RX-CLONE", title="Clone before growing", change="Clone the tensor.", snippets={"python": "t = t.clone()\nt.resize_(1000)"}),
        ),
        facts=facts, environment=ENVIRONMENT,
    )  # fmt: skip


def healthy() -> Report:
    """Nothing failed."""
    facts = (
        Fact("reserved_peak", 18 * GIB, "bytes", Source.VIRTUAL_GPU, "memory_stats"),
        Fact("active_peak", 17 * GIB, "bytes", Source.VIRTUAL_GPU, "memory_stats"),
        Fact("kv_bytes_per_token", 131_072, "bytes", Source.ESTIMATED, "shape"),
        Fact("duration", 3.25, "seconds", Source.MEASURED, "manifest"),
    )
    return Report(
        target_kind="model", target_name="llama-3-8b.safetensors", primary=HEALTHY,
        headline="It fits: peak reserved memory is 18.00 GiB of 23.65 GiB.",
        verdicts=ruled_out("true-capacity", "fragmentation"), prescriptions=(), facts=facts,
        environment=ENVIRONMENT, workload=WORKLOAD, timing={"examine_s": 1.5},
    )  # fmt: skip


def undecided() -> Report:
    """The text cannot decide."""
    return Report(
        target_kind="crash-text", target_name="-", primary=UNDECIDED,
        headline="The cause cannot be told from this.",
        verdicts=(
            verdict("fragmentation", Outcome.UNDECIDED, "No block list.", confidence=Confidence.LOW, missing=("an allocator snapshot",)),
        ),
        prescriptions=(), facts=(), missing=("an allocator snapshot", "the whole message"),
        command="vramdoc diagnose -",
    )  # fmt: skip


def empty() -> Report:
    """As little as a Report can hold."""
    return Report(
        target_kind="snapshot", target_name="s.pickle", primary=HEALTHY, headline="Nothing failed.",
        verdicts=(), prescriptions=(), facts=(),
    )  # fmt: skip


HOSTILE = (
    "\x1b[31mred\x1b]8;;http://evil.example\x07link </details><script>alert(1)</script> <img src=x onerror=alert(2)> "
    "``` ~~~ | a | b | @everyone #1 [x](javascript:alert(3)) ![i](http://evil.example/p.png) [bold red]rich[/] "
    "&lt;b&gt; \u202egnp.exe \u200b {{ 7*7 }} {% raw %} ${7*7} \\ \r\n::error::injected\n::set-output name=a::b\x00 \ud800 末"
)


def hostile() -> Report:
    """Every foreign string tries to break out of its format."""
    fact = Fact("evil | name", HOSTILE, "text", Source.READ, HOSTILE)
    number = Fact("nan", float("nan"), "bytes", Source.READ, HOSTILE)
    change = replace(
        EXPANDABLE, title=HOSTILE, change=HOSTILE, risk=HOSTILE, limits=HOSTILE, snippets={"bash": HOSTILE},
        verification=replace(EXPANDABLE.verification, reason=HOSTILE, command=HOSTILE, after={"exit": HOSTILE, "oom": False}),
    )  # fmt: skip
    frames = (Frame(HOSTILE, 1, HOSTILE), Frame("</script><script>alert(4)</script>", 2, "f"))
    snapshot = striped_snapshot()
    blocks = tuple(replace(b, frames=frames) for b in snapshot.segments[0].blocks)
    snapshot = replace(
        snapshot, segments=(replace(snapshot.segments[0], blocks=blocks), *snapshot.segments[1:]),
        allocator_settings={HOSTILE: HOSTILE},
    )  # fmt: skip
    return Report(
        target_kind=HOSTILE, target_name=HOSTILE, primary="fragmentation", headline=HOSTILE,
        verdicts=(
            verdict("fragmentation", Outcome.CONFIRMED, HOSTILE, evidence=(fact, number), notes=(HOSTILE,)),
            verdict("leak", Outcome.UNDECIDED, HOSTILE, missing=(HOSTILE,)),
        ),
        prescriptions=(change,), facts=(fact, number), environment={HOSTILE: HOSTILE, "torch": HOSTILE, "list": [HOSTILE, 1]},
        workload={"line": HOSTILE}, command=HOSTILE, notes=(HOSTILE,), missing=(HOSTILE,), recording=HOSTILE,
        case=Case(kind="snapshot", name=HOSTILE, snapshot=snapshot, oom=OomAnatomy(requested=read("requested", 1), text=HOSTILE)),
    )  # fmt: skip


def huge() -> Report:
    """Far more than fits into a ticket."""
    facts = tuple(
        Fact(f"figure_{i}", i * MIB, "bytes", Source.READ, "x" * 300) for i in range(3_000)
    )
    base = fragmentation()
    return replace(
        base, headline="long " * 20_000, facts=facts, notes=("n" * 70_000,) * 3,
        verdicts=tuple(
            verdict(f"rule-{i}", Outcome.CONFIRMED, "s" * 5_000, evidence=facts[:50]) for i in range(60)
        ),
        environment={f"VAR_{i}": "v" * 2_000 for i in range(500)}, command="c" * 90_000,
    )  # fmt: skip


SAMPLES = {
    build.__name__: build
    for build in (
        fragmentation, crash_text, capacity, cublas, resize, healthy, undecided, empty, hostile, huge,
    )
}  # fmt: skip
