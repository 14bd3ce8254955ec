"""Memory mistakes visible in source: ``check_paths`` finds them, ``RULES`` are what it looks for. Imports no torch, runs nothing."""

from __future__ import annotations

from vramdoc.lint.check import check_paths
from vramdoc.lint.page import rule_page
from vramdoc.lint.rules import RULES
from vramdoc.lint.violation import Level, LintResult, Unreadable, Violation

__all__ = ["RULES", "Level", "LintResult", "Unreadable", "Violation", "check_paths", "rule_page"]
