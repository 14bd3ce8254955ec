"""Trying a change on a recording or a bare snapshot: its own requests are replayed under the other config.

Nothing of the recording is executed. What a replay cannot know is said with each result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramdoc.evidence.case import Case
    from vramdoc.prescribe.verify import Trial


def replay_trial(_case: Case) -> Trial | None:
    """Return a way to try configs on this case; None where there is no trace to replay."""
    return None
