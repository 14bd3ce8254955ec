"""The lint rules, in the order of their ids. A rule is one file; naming it here is all that is left to do."""

from __future__ import annotations

from vramdoc.lint.rule import Rule
from vramdoc.lint.rules import (
    conflicting_settings,
    frozen_growth,
    ineffective_setting,
    late_setting,
    malformed_setting,
    no_caching,
    setting_after_import,
    setting_in_call,
    setting_out_of_range,
    unexported_setting,
)

RULES: tuple[Rule, ...] = (
    late_setting.RULE,
    setting_after_import.RULE,
    malformed_setting.RULE,
    setting_out_of_range.RULE,
    conflicting_settings.RULE,
    no_caching.RULE,
    setting_in_call.RULE,
    ineffective_setting.RULE,
    unexported_setting.RULE,
    frozen_growth.RULE,
)
