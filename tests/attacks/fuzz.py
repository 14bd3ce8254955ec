"""Coverage-guided input for the readers of foreign data, under limits: ``python -m tests.attacks.fuzz [READER ...] --seconds N``.

Each reader runs in a process of its own under libFuzzer (atheris), which keeps what reaches new code and stops at the first
exception that is no refusal, at more than 5 s for one input, and at more than 1 GiB. What it stopped at lies in
``tests/attacks/found``, where ``test_found`` reads it until it is mended and has become a test with a name.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOUND = Path(__file__).with_name("found")
NAMES = ("pickle", "crash-text", "safetensors-header", "config")
LONGEST_S, MOST_MIB, LARGEST_INPUT = 5, 1024, 16 << 10
"""Seconds of CPU: on a busy machine an input may wait long for its turn."""
STUCK_S = 60
"""Of wall time, for what hangs without coming back to Python."""
_PROGRESS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/.*rss: (\d+)Mb")


def main() -> int:
    """Fuzz what is named, one after another; 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("readers", nargs="*", metavar="READER", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        _inside(arguments.readers[0], arguments.inside, arguments.seconds)
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed here: no coverage-guided input; see the extra `fuzz`")
        return 0
    print(f"| {'reader':18} | seconds | inputs | edges | features | peak MiB | found |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    return max(_outside(name, arguments.seconds) for name in arguments.readers or NAMES)


def _outside(name: str, seconds: int) -> int:
    """Run one reader in its own process and print its row."""
    FOUND.mkdir(exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vramdoc-fuzz-") as work:
        log = Path(work) / "log"
        with log.open("wb") as output:
            code = subprocess.run(
                [sys.executable, "-m", "tests.attacks.fuzz", name, "--inside", work, "--seconds", str(seconds)],
                stdout=output, stderr=subprocess.STDOUT, check=False,
            ).returncode  # fmt: skip
        text = log.read_text(encoding="utf-8", errors="replace")
    steps = _PROGRESS.findall(text)
    inputs, edges, features, _, memory = steps[-1] if steps else ("0",) * 5
    spent = round(time.monotonic() - began)
    print(
        f"| {name:18} | {spent} | {int(inputs):,} | {edges} | {features} | {memory} | {'yes' if code else 'nothing'} |",
        flush=True,
    )
    if code:
        print(text[-4000:], file=sys.stderr)
    return int(code != 0)


def _inside(name: str, work: Path, seconds: int) -> None:
    """Become libFuzzer; it ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=["vramdoc"]):
        from tests.attacks.readers import readers

    reader = readers(work)[name]

    def too_long(*_: object) -> None:
        raise AssertionError(f"longer than {LONGEST_S} s of CPU")

    def read(content: bytes) -> None:
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
        try:
            reader.read(content)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    signal.signal(signal.SIGPROF, too_long)
    corpus = work / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(reader.seeds()):
        (corpus / str(number)).write_bytes(seed)
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-artifact_prefix={FOUND / name}-",
            f"-max_total_time={seconds}",
            f"-timeout={STUCK_S}",
            f"-rss_limit_mb={MOST_MIB}",
            f"-max_len={LARGEST_INPUT}",
            "-print_final_stats=1",
        ],
        read,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
