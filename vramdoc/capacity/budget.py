"""Budget: where a device's bytes go when sessions of one length fill it. All of it is measured in one calibration run.

    total = foreign + outside PyTorch + weights + workspaces + sessions * per session + activations + slack + left over

It knows no border; ``plan`` finds that.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramdoc.checkpoint.kv import KvLayout
from vramdoc.record.recording import Manifest, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One context's bytes. ``source`` is the device's kind: measured on it, or by the real allocator on a virtual one."""

    context: int
    total: int
    outside: int
    """Held by the CUDA context, cuBLAS and other processes: what PyTorch's allocator cannot have."""
    weights: int
    workspaces: int
    """What the first session leaves behind besides its cache: cuBLAS workspaces."""
    per_session: int
    """What one more session keeps allocated."""
    kv_formula: int
    """What the formula says that it keeps: the difference is rounding and what the strategy adds."""
    activations: int
    """What the prompt of the last session needs above the level at its end."""

    @property
    def available(self) -> int:
        """What PyTorch's allocator can have."""
        return self.total - self.outside

    def active_needed(self, sessions: int) -> int:
        """Active bytes at the peak; what fragmentation adds is not in it."""
        return self.weights + self.workspaces + sessions * self.per_session + self.activations

    def sessions_by_formula(self) -> int:
        """How many sessions fit if nothing is lost to fragmentation."""
        return max(0, (self.available - self.active_needed(0)) // max(1, self.per_session))


def budget_of(manifest: Manifest, layout: KvLayout, context: int, batch: int) -> Budget | None:
    """Read the budget from a ``fill`` run of at least two sessions; None if it ended before the second was read."""
    device = manifest.device
    load = next((phase for phase in manifest.phases if phase.name == "load"), None)
    prompts = [phase for phase in manifest.phases if phase.name == "prefill" and phase.ended_us]
    if device is None or load is None or len(prompts) < 2:
        return None
    first, last = prompts[0], prompts[-1]
    per_session = (_level(last) - _level(first)) // (len(prompts) - 1)
    return Budget(
        context=context,
        total=device.total_bytes,
        outside=device.total_bytes - (last.driver_free_bytes or 0) - (last.reserved_bytes or 0),
        weights=_level(load),
        workspaces=max(0, _level(first) - _level(load) - per_session),
        per_session=per_session,
        kv_formula=layout.bytes_at(context, batch=batch),
        activations=max((phase.active_peak_bytes or 0) - _level(phase) for phase in prompts),
    )


def _level(phase: Phase) -> int:
    return phase.active_bytes or 0
