"""What the recorders inside a recorded program must know: plain data, carried from process to process in one variable.

It starts nothing and writes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vramdoc.record.manifest_json import from_json

VARIABLE = "VRAMDOC_RECORDING"
"""The environment variable; ``injected.sitecustomize`` spells it once more, because it runs before this can be imported."""

INJECTED = Path(__file__).parent / "injected"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSettings:
    """One ``vramdoc record``, as each of its processes sees it."""

    folder: str
    """Absolute. Created by the first process that has something to keep."""
    subject: str
    """The program's own name, without its folder."""
    device_kind: str = "real"
    device_key: str = ""
    assumed: Mapping[str, int] = field(default_factory=dict)
    """Of a virtual device: what it takes for granted."""
    max_entries: int
    stacks: str
    holders: bool = True
    """Whether what holds memory is looked for at an out-of-memory error and at the end."""
    every_s: float | None = None
    """Seconds between snapshots; None lets the recorder choose, so that they cost 1 % at most."""

    def injected_into(self, environment: Mapping[str, str]) -> dict[str, str]:
        """``environment`` for a program that is to be recorded under these settings."""
        path = environment.get("PYTHONPATH", "")
        return {
            **environment,
            VARIABLE: json.dumps(asdict(self)),
            "PYTHONPATH": f"{INJECTED}{os.pathsep}{path}" if path else str(INJECTED),
        }

    @classmethod
    def from_text(cls, text: str) -> RecordingSettings:
        """The inverse: from the variable's value.

        Raises:
            UnreadableInput: somebody else wrote it.
        """
        return from_json(cls, json.loads(text))
