"""One command: makes the inputs, runs ours and the peers on them in the same run, and writes docs/benchmarks.md and ratios.json.

    python -m benchmarks [--quick] [--ten-million] [--only SUBJECT ...] [--peers DIRECTORY] [--inputs DIRECTORY]

The page is written subject by subject; one that was not asked for keeps its part. ``ratios.json`` keeps the last ratios: one that got
more than 20 % worse is printed, and the command then exits 1. Times differ from machine to machine and hour to hour, ratios of one run
much less, which is why only they are compared.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE)
)  # each subject is also a program of its own, and imports its neighbours by their bare names

import commands  # noqa: E402 - found through the line above
import other_pages  # noqa: E402
import reading  # noqa: E402
import replaying  # noqa: E402
import starting  # noqa: E402
from regression import regressions  # noqa: E402
from section import Options, Section  # noqa: E402

SUBJECTS: Mapping[str, tuple[str, Callable[[Options], Section]]] = {
    "reading": ("Reading a snapshot", reading.measure),
    "commands": ("Whole commands", commands.measure),
    "replaying": ("Replaying", replaying.measure),
    "starting": ("Start-up", starting.measure),
    "recording": ("Recording", other_pages.recording),
    "page": ("The interactive page", other_pages.page),
    "lint": ("Linting", other_pages.lint),
}
PAGE, RATIOS = HERE.parent / "docs" / "benchmarks.md", HERE / "ratios.json"
SIZES, TEN_MILLION, QUICK = [10_000, 100_000, 1_000_000], 10_000_000, [100_000]
HEAD = """# Benchmarks

Written by `make bench` (`python -m benchmarks`): the same seeded inputs for ours and for the peers, in the same run, each in a process of
its own. CPU seconds and peak memory are the kernel's (`wait4`). Where times depend on the machine, read the ratios.
"""


def machine() -> str:
    """Where and with what, in one paragraph."""
    model = re.search(r"model name\s*: (.*)", _text(Path("/proc/cpuinfo")))
    memory = re.search(r"MemTotal:\s*(\d+)", _text(Path("/proc/meminfo")))
    parts = [
        model[1] if model else platform.processor() or platform.machine(),
        f"{os.cpu_count()} cores",
        *([f"{int(memory[1]) / (1 << 20):.0f} GiB"] if memory else []),
        f"{platform.system()}, Python {platform.python_version()}",
    ]
    return ", ".join([*parts, *map(version, ("vramdoc", "torch", "numpy", "ptmem", "pt-snap-cli"))])


def version(name: str) -> str:
    """A package and its version."""
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} not installed"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def load() -> str:
    """How busy the machine is with other things; not known on Windows."""
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"


def parts_of(page: str) -> dict[str, str]:
    """Heading -> body of the page as it is."""
    return dict(
        re.findall(r"^## (.*?)\n\n(.*?)\s*(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="100,000 events only")
    parser.add_argument("--ten-million", action="store_true", help="read 10,000,000 events too")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(sys.executable).parent,
        help="bin folder with ptmem, pt-snap",
    )
    parser.add_argument("--inputs", type=Path, help="keep the inputs there")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else [*SIZES, *([TEN_MILLION] if asked.ten_million else [])]
    # As an installation has it; a checkout may have been run without writing any.
    compileall.compile_dir(HERE.parent / "vramdoc", quiet=1)
    before: dict[str, float] = json.loads(_text(RATIOS) or "{}")
    now: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.inputs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(folder=folder.resolve(), sizes=sizes, peers=asked.peers)
        for name in asked.only:
            title, measure = SUBJECTS[name]
            busy = load()
            section = measure(options)
            when = (
                f"{datetime.now(timezone.utc):%Y-%m-%d}, {busy} at its start, {load()} at its end."
            )
            part = f"*{when}*\n\n{section.text}"
            print(f"## {title}\n\n{part}\n", flush=True)
            now |= section.ratios
            # Read again each time: another run may have written its part meanwhile.
            _write(
                parts_of(_text(PAGE)) | {title: part},
                json.loads(_text(RATIOS) or "{}") | section.ratios,
            )
    worse = regressions(before, now)
    print("\n".join(worse) or "no ratio got more than 20 % worse")
    return 1 if worse else 0


def _write(parts: Mapping[str, str], ratios: Mapping[str, float]) -> None:
    rows = "\n".join(f"| {name} | {value:.3g} |" for name, value in sorted(ratios.items()))
    summary = f"Smaller is better; below 1 is less than what stands beside it.\n\n| ratio | |\n|---|---|\n{rows}"
    whole = {"Machine": f"{machine()}.", "Ratios": summary}
    whole |= {title: parts[title] for title, _ in SUBJECTS.values() if title in parts}
    text = HEAD + "".join(f"\n## {title}\n\n{body}\n" for title, body in whole.items())
    PAGE.write_text(text, encoding="utf-8", newline="\n")
    RATIOS.write_text(
        json.dumps({k: float(f"{v:.3g}") for k, v in sorted(ratios.items())}, indent=1) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main())
