"""WorkloadSpec: what a model is asked to do, as plain data that travels to the child process as JSON.

Imports no torch: the command line and the recorder read it too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """Everything that decides what runs; equal specs make equal requests to the allocator."""

    target: str
    """Path of the model file, index or folder."""
    name: str = "chat"
    """``chat``, ``prefill``, ``fill``, ``load``, ``encode``, ``train`` or ``serve``."""
    context: int = 2048
    """Tokens a conversation grows to."""
    sessions: int = 4
    """Conversations open at once; for ``serve``, at most."""
    new_tokens: int = 8
    """Tokens generated a turn. A decode step of a 32-layer model makes about 4,400 trace events, and the recorder keeps
    the last million: the default chat stays at half of that."""
    batch: int = 1
    cache: str = "dynamic"
    """``dynamic``, ``static``, ``chunked``, ``paged``, ``sliding``, ``int8``, ``int4``, ``fp8``, ``offloaded``."""
    dtype: str = ""
    """Computation type, empty for the checkpoint's own."""
    seed: int = 0
    arrivals: int = 24
    """Sessions that arrive in ``serve``."""
    lengths: str = ""
    """Their lengths: ``lognormal:IN,OUT``, ``uniform:LO-HI,LO-HI``, ``fixed:IN,OUT`` or a CSV or JSONL file of lengths."""
    warm_cublas: bool = False
    """Make the cuBLAS handle before the weights are loaded (prescription RX-WARMHANDLE)."""
    empty_cache: bool = False
    """Call ``empty_cache`` at each phase change (prescription RX-EMPTYCACHE)."""
    memory_fraction: float | None = None
    """``set_per_process_memory_fraction`` before anything is allocated (prescription RX-FRACTION)."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the manifest and for the child."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WorkloadSpec:
        """The inverse of ``to_json``; unknown keys are ignored."""
        return cls(**{key: data[key] for key in cls.__dataclass_fields__ if key in data})

    def line(self) -> str:
        """The options that reproduce this workload, in one line."""
        parts = [
            f"--workload {self.name} --context {self.context} --sessions {self.sessions}",
            f"--new-tokens {self.new_tokens} --batch {self.batch} --cache {self.cache} --seed {self.seed}",
        ]
        if self.name == "serve":
            parts.append(f"--arrivals {self.arrivals}")
        if self.name == "serve" and self.lengths:
            parts.append(f"--lengths {self.lengths}")
        if self.dtype:
            parts.append(f"--dtype {self.dtype}")
        return " ".join(parts)
