"""By what a run's figures were measured. It knows no snapshot, so that judging a crash text need not load one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramdoc.facts import Source

if TYPE_CHECKING:
    from vramdoc.record.manifest import Manifest


def source_of(manifest: Manifest | None) -> Source:
    """The source of what was measured; a snapshot without a manifest was handed to us and is only read."""
    if manifest is None or manifest.device is None:
        return Source.READ
    return Source.VIRTUAL_GPU if manifest.device.kind == "virtual" else Source.MEASURED
