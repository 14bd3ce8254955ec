"""Run the virtual-GPU tests with other torch releases than the installed one.

    python tests/releases/run.py                          # 2.6.0, 2.9.1 and 2.12.1
    python tests/releases/run.py --release 2.8.0 --home DIR -- -x -k graph

Each release gets a virtual environment of its own under the user's cache (some 5 GB each, fetched once) that holds torch
and NVML's bindings only; the tests run in this interpreter and start their child programs in that one. Not part of CI.
"""

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

from platformdirs import user_cache_path

RELEASES = ("2.6.0", "2.9.1", "2.12.1")
NEEDED = ("numpy", "nvidia-ml-py")
TESTS = Path(__file__).parents[1] / "virtual_gpu"


def environment_of(release: str, home: Path) -> Path:
    """The interpreter of the environment for ``release``, made and filled when it is not there."""
    python = home / release / "bin" / "python"
    if not python.exists():
        venv.create(home / release, with_pip=True)
    have = subprocess.run(
        [python, "-c", "import numpy, pynvml, torch.version as v; print(v.__version__)"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not have.stdout.startswith(release):
        print(f"installing torch {release} into {home / release}", flush=True)
        command = [python, "-m", "pip", "install", "-q", "--no-compile"]
        subprocess.run([*command, f"torch=={release}", *NEEDED], check=True)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", action="append", help="a torch release; may be repeated")
    parser.add_argument("--home", type=Path, default=user_cache_path("vramdoc") / "releases")
    parser.add_argument("pytest_arguments", nargs="*", help="after --: passed on to pytest")
    arguments = parser.parse_args()
    failed = []
    for release in arguments.release or RELEASES:
        python = environment_of(release, arguments.home)
        print(f"== torch {release}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", TESTS, *arguments.pytest_arguments],
            env={**os.environ, "VRAMDOC_TORCH_PYTHON": str(python)},
            check=False,
        )
        if done.returncode:
            failed.append(release)
    print(f"failed: {', '.join(failed)}" if failed else "every release passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
