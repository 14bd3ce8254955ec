"""Running a model, or the person's own command, for a diagnosis; and running it again under a change.

What happens inside the run is ``workload``'s business, or the program's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vramdoc.errors import ChildProblem
from vramdoc.examine.device import choose_gpu
from vramdoc.examine.request import DiagnoseRequest
from vramdoc.facts import Source
from vramdoc.prescribe.verify import RunOutcome, Trial
from vramdoc.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from vramdoc.record.recording import Manifest, Recording


class NeverUsedGpu(ChildProblem):
    """The command ended before any of its processes used a GPU through PyTorch. What it printed may still say why it failed."""

    def __init__(self, name: str, *, failed: bool, output: bytes) -> None:
        super().__init__(
            f"{name} left no recording: it never used a GPU through PyTorch",
            "give the command that does, for example: -- python train.py",
        )
        self.output = output if failed else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Does one piece of work on one device, any number of times."""

    run: Callable[[str, Mapping[str, Any]], Recording]
    """(allocator config, changed WorkloadSpec fields) -> the recording it left."""
    alloc_conf: str
    can_change_workload: bool
    notes: tuple[str, ...]

    def trial(self, first: Recording) -> Trial:
        """Reruns on the same device, compared with the first run."""
        manifest = first.manifest
        is_real = manifest.device is not None and manifest.device.kind == "real"

        def rerun(alloc_conf: str | None, changes: Mapping[str, Any]) -> RunOutcome:
            config = self.alloc_conf if alloc_conf is None else alloc_conf
            return outcome_of(self.run(config, changes).manifest)

        return Trial(
            method="rerun",
            source=Source.MEASURED if is_real else Source.VIRTUAL_GPU,
            run=rerun,
            can_change_workload=self.can_change_workload,
            before=outcome_of(manifest),
        )


def model_runner(request: DiagnoseRequest) -> Runner:
    """Decide workload and device for a model target.

    Raises:
        UnreadableInput: the model file lies about itself.
    """
    from vramdoc.checkpoint import default_workload, read_checkpoint

    assert request.target.path is not None
    checkpoint = read_checkpoint(request.target.path)
    gpu, sentence = choose_gpu(request.gpu)
    spec = WorkloadSpec(
        target=str(request.target.path.absolute()), name=default_workload(checkpoint)
    )
    spec = replace(spec, **request.workload)

    def run(alloc_conf: str, changes: Mapping[str, Any]) -> Recording:
        from vramdoc.record.launch import run_workload

        return run_workload(
            replace(spec, **changes),
            gpu=gpu,
            alloc_conf=alloc_conf,
            root=request.recordings,
            foreign_bytes=request.foreign_bytes,
            progress=request.progress,
        )

    return Runner(
        run=run,
        alloc_conf=request.alloc_conf,
        can_change_workload=True,
        notes=(sentence,) if sentence else (),
    )


def command_runner(request: DiagnoseRequest) -> Runner:
    """Run the person's own program; its output goes into the recording, not to the terminal."""
    gpu, sentence = choose_gpu(request.gpu)

    def run(alloc_conf: str, _changes: Mapping[str, Any]) -> Recording:
        from vramdoc.record.command import record_command

        ended = record_command(
            request.argv,
            gpu=gpu,
            alloc_conf=alloc_conf,
            root=request.recordings,
            foreign_bytes=request.foreign_bytes,
            capture_output=True,
        )
        if ended.recording is None:
            raise NeverUsedGpu(request.target.name, failed=ended.code != 0, output=ended.output)
        return ended.recording

    return Runner(
        run=run,
        alloc_conf=request.alloc_conf,
        can_change_workload=False,
        notes=(sentence,) if sentence else (),
    )


def outcome_of(manifest: Manifest) -> RunOutcome:
    """The peaks of a whole run: the largest of its phases and of torch's own statistics at the end."""
    return RunOutcome(
        exit=str(manifest.exit.kind),
        reserved_peak=_largest(
            [phase.reserved_peak_bytes for phase in manifest.phases],
            manifest.statistics.get("reserved_bytes.all.peak"),
        ),
        active_peak=_largest(
            [phase.active_peak_bytes for phase in manifest.phases],
            manifest.statistics.get("active_bytes.all.peak"),
        ),
    )


def _largest(values: list[int | None], last: int | None) -> int | None:
    known = [value for value in (*values, last) if value is not None]
    return max(known, default=None)
