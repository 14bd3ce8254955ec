"""What linting a tree of 2,000 files costs, beside parsing it and nothing else, and beside torch-preflight where it is installed.

    python benchmarks/lint.py [--peers DIRECTORY] [--files N]

The tree is the Python source of the installed torch, evenly thinned. ``--peers`` names the ``bin`` folder of an environment with
torch-preflight. Wall seconds are those of this machine with all its cores; CPU seconds add up over processes.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from child_cost import child_cost

_PARSE = (
    "import ast, sys, pathlib\n"
    "for path in sorted(pathlib.Path(sys.argv[1]).rglob('*.py')):\n"
    "    try: ast.parse(path.read_bytes())\n"
    "    except (SyntaxError, ValueError): pass\n"
)


def tree(folder: Path, files: int) -> int:
    """Copy that many of torch's own source files, evenly chosen, below ``folder``; how many there were."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        sys.exit("torch is not installed: nothing to lint")
    root = Path(found.origin).parent
    every = sorted(root.rglob("*.py"))
    for number in range(min(files, len(every))):
        path = every[number * len(every) // min(files, len(every))]
        copy = folder / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return min(files, len(every))


def contestants(peers: Path | None) -> Mapping[str, Sequence[str]]:
    """Name -> command, to which the folder is added."""
    found = {
        "ast.parse, nothing else": [sys.executable, "-c", _PARSE],
        "vramdoc lint": [sys.executable, "-m", "vramdoc", "lint"],
    }
    path = shutil.which("torch-preflight", path=None if peers is None else str(peers))
    if path is None:
        print("torch-preflight: not installed, skipped", file=sys.stderr)
    else:
        found["torch-preflight check"] = [path, "check"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--files", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "torch"
        count = tree(folder, options.files)
        print(f"| {count:,} files of torch | CPU s | wall s | peak MiB |\n|---|---|---|---|")
        for name_of, command in contestants(options.peers).items():
            cost = child_cost([*command, str(folder)], beside=Path(name), rounds=1, accepted=(0, 1))
            if cost is None:
                print(f"| {name_of} | failed | | |")
            else:
                print(
                    f"| {name_of} | {cost.seconds:.1f} | {cost.wall:.1f} | {cost.mebibytes:.0f} |"
                )


if __name__ == "__main__":
    main()
