"""Remedy: one entry of the catalogue, as data: what to change, what it costs, where it does not work, how it is tried.

It knows no case; ``catalogue`` chooses the entries that fit one and turns them into prescriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change that helps against some causes."""

    id: str
    title: str
    change: str
    """The change in one sentence."""
    serves: tuple[str, ...]
    """Verdict ids."""
    effect: str
    """What to expect when it works."""
    risk: str
    verify: str
    """How the effect is checked: ``replay``, ``rerun``, ``probe`` or ``formula``, and by which figure."""
    limits: str = ""
    """Platforms, releases and circumstances where it does not work."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Allocator options, by key."""
    settings_since: tuple[int, int] = (2, 0)
    """First release that accepts ``settings``; before it, or where nobody knows the release, the other forms serve."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Other environment variables. They, ``command_line`` and ``check`` may name figures of the case in braces (``catalogue``)."""
    settings_from: Literal["", "refused", "not in force"] = ""
    """Where the settings come from, if from the case: what a refused string meant, or what was set in vain."""
    python: str = ""
    """Program lines, with a comment that says where they belong."""
    command_line: str = ""
    """A command line, where the change is one."""
    workload_change: Mapping[str, Any] = field(default_factory=dict)
    """Fields of WorkloadSpec that try the same change on our own workload."""
    check: str = ""
    """The command that verifies it; empty for a recording before and after."""
    needs: tuple[str, ...] = ()
    """Names of conditions in ``circumstances`` that must hold for it to be proposed."""
