"""Whether ratios got worse since they were last measured. It knows no subject and no file."""

from __future__ import annotations

from collections.abc import Mapping

TOLERATED = 1.2
"""Two runs of one program differ by up to 10 % in their ratios here; twice that is no noise."""


def regressions(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Ratios that got worse by more than what is tolerated, in words. One that is new, or was not measured now, is none."""
    return [
        f"worse: {name}: {now[name]:.3g}, before {before[name]:.3g}"
        for name in sorted(now.keys() & before.keys())
        if now[name] > TOLERATED * before[name]
    ]
