"""What lint found in the person's own script, for the rules that a line of source can settle. It knows the ids, no rule of lint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramdoc.diagnose.code_lines import base_name
from vramdoc.evidence.case import Case
from vramdoc.facts import Fact, Source

if TYPE_CHECKING:
    from vramdoc.lint.violation import Violation

IDS_BEYOND_VOCABULARY = "VD504"
SETTING_IN_CALL = "VD007"
MALFORMED_SETTING = ("VD003", "VD004")
"""Settings that torch refuses."""
SETTING_LATE = ("VD001", "VD002")
"""Settings made after the allocator has read its variable."""
SETTING_NOT_READ = ("VD001", "VD007", "VD008", "VD009")
"""Settings made too late, inside a call, in a way that does nothing, or without export."""


def violation(case: Case, *ids: str) -> Violation | None:
    """The first violation with one of ``ids``."""
    return next((found for found in case.violations if found.id in ids), None)


def source_line(found: Violation) -> Fact:
    """A violation as evidence."""
    place = f"{base_name(found.path)}:{found.line} ({found.id})"
    return Fact("source_line", found.message, "text", Source.READ, place)
