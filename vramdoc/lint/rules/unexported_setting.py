"""VD009: a shell assignment of an allocator variable that no process ever sees."""

from __future__ import annotations

from collections.abc import Iterator

from vramdoc.lint.finding import Finding
from vramdoc.lint.rule import Example, Rule
from vramdoc.lint.settings import VARIABLES, Reach, Setting, Target
from vramdoc.lint.violation import Level

RULE = Rule(
    id="VD009",
    name="unexported-setting",
    title="allocator variable set where no process sees it",
    level=Level.WARNING,
    why="""
    A shell hands exported variables to the programs it starts, and an assignment before a command to that command. A line that only
    assigns does neither. In a Dockerfile each `RUN` has a shell of its own: what it exports is gone at its end.
    """,
    instead="`export` it, put it in front of the command, or use `ENV` in a Dockerfile.",
    bad=(
        Example(
            file="train.sh",
            code="""
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # VD009
python train.py
""",
        ),
        Example(
            file="Dockerfile",
            lines=(2,),
            code="""FROM pytorch/pytorch
RUN export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
CMD ["python", "train.py"]
""",
        ),
    ),
    good=(
        Example(
            file="train.sh",
            code="""
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
python train.py
""",
        ),
        Example(
            file="train2.sh",
            code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n",
        ),
        Example(
            file="Dockerfile",
            code="FROM pytorch/pytorch\nENV PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
        ),
    ),
    words=VARIABLES,
    limits="A variable that the calling shell had exported already is updated by a plain assignment; the file cannot tell.",
)
_WHY = {
    Reach.UNEXPORTED: "is assigned but not exported, so the programs started below do not see it",
    Reach.LAYER: "is exported in a RUN line of its own and gone when the line ends; use ENV",
}


@RULE.on_setting
def check(setting: Setting, target: Target) -> Iterator[Finding]:  # noqa: ARG001 - the same everywhere
    """Settings whose reach is nothing."""
    if setting.reach in _WHY:
        yield setting.finding(f"{setting.variable} {_WHY[setting.reach]}")
