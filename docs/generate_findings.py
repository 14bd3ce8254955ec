"""Make docs/findings: one page a finding, and an index, from the rules and the catalogue themselves.

python docs/generate_findings.py          write them
python docs/generate_findings.py --check  exit 1 where one is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from vramdoc.diagnose.rules import RULES
from vramdoc.prescribe.explain import finding_page

FOLDER = Path(__file__).resolve().parent / "findings"


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    made = {f"{rule.id}.md": finding_page(rule).to_markdown() for rule in RULES}
    listed = "\n".join(f"- [{rule.id}]({rule.id}.md): {rule.title}" for rule in RULES)
    made["index.md"] = (
        "# Findings\n\nMade from the code by `python docs/generate_findings.py`; `vramdoc explain ID` shows the same.\n\n"
        f"{listed}\n"
    )
    return made


def stale(folder: Path = FOLDER) -> list[str]:
    """Names of pages that are missing, out of date, or of a finding that is no more."""
    made = pages()
    present = {path.name for path in folder.glob("*.md")}
    changed = {
        name
        for name, text in made.items()
        if name not in present or (folder / name).read_text("utf-8") != text
    }
    return sorted(changed | (present - made.keys()))


def main() -> int:
    """Write the pages, or say which are out of date."""
    if "--check" in sys.argv[1:]:
        for name in stale():
            sys.stderr.write(
                f"docs/findings/{name} is out of date: run python docs/generate_findings.py\n"
            )
        return 1 if stale() else 0
    FOLDER.mkdir(exist_ok=True)
    for name in stale():
        if name in pages():
            (FOLDER / name).write_text(pages()[name], "utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
