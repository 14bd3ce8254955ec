"""Running a model for a diagnosis, and running it again under a change. What happens in the run is ``workload``'s business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vramdoc.examine.device import choose_gpu
from vramdoc.examine.request import DiagnoseRequest
from vramdoc.facts import Source
from vramdoc.prescribe.verify import RunOutcome, Trial
from vramdoc.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from vramdoc.record.recording import Manifest, Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRunner:
    """Runs one workload on one device, any number of times."""

    request: DiagnoseRequest
    spec: WorkloadSpec
    gpu: str
    notes: tuple[str, ...]

    def run(self, alloc_conf: str, changes: Mapping[str, Any]) -> Recording:
        """Run the workload under a config, with the given WorkloadSpec fields changed."""
        from vramdoc.record.launch import run_workload

        return run_workload(
            replace(self.spec, **changes),
            gpu=self.gpu,
            alloc_conf=alloc_conf,
            root=self.request.recordings,
            foreign_bytes=self.request.foreign_bytes,
            progress=self.request.progress,
        )

    def trial(self, first: Recording) -> Trial:
        """Reruns on the same device."""
        manifest = first.manifest
        is_real = manifest.device is not None and manifest.device.kind == "real"

        def rerun(alloc_conf: str | None, changes: Mapping[str, Any]) -> RunOutcome:
            config = self.request.alloc_conf if alloc_conf is None else alloc_conf
            return outcome_of(self.run(config, changes).manifest)

        return Trial(
            method="rerun",
            source=Source.MEASURED if is_real else Source.VIRTUAL_GPU,
            run=rerun,
            can_change_workload=True,
            before=outcome_of(manifest),
        )


def model_runner(request: DiagnoseRequest) -> ModelRunner:
    """Decide workload and device for a model target.

    Raises:
        UnreadableInput: the model file lies about itself.
    """
    from vramdoc.checkpoint import default_workload, read_checkpoint

    assert request.target.path is not None
    checkpoint = read_checkpoint(request.target.path)
    gpu, sentence = choose_gpu(request.gpu)
    spec = WorkloadSpec(
        target=str(request.target.path.resolve()), name=default_workload(checkpoint)
    )
    return ModelRunner(
        request=request,
        spec=replace(spec, **request.workload),
        gpu=gpu,
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
