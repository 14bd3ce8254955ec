"""The manifest of a run that has just begun: what is known before torch says anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from vramdoc import __version__
from vramdoc.record.environment import alloc_conf_of, shown_environment, shown_platform
from vramdoc.record.manifest import Exit, ExitKind, Manifest


def first_manifest(
    kind: str,
    name: str,
    environment: Mapping[str, str],
    *,
    workload: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
) -> Manifest:
    """A manifest of something that runs: ``kind`` and ``name`` of the target, and the allow-listed part of its environment."""
    return Manifest(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tool_version=__version__,
        versions=versions or {},
        platform=shown_platform(),
        alloc_conf=alloc_conf_of(environment),
        environment=shown_environment(environment),
        workload=workload or {"name": kind, "line": name},
        target={"kind": kind, "name": name},
        exit=Exit(kind=ExitKind.RUNNING),
    )
