"""Find the torch that a child process would import, without importing it.

Its ``version.py`` is read as text and never executed. This module does not know what the virtual GPU needs from
the build beyond "a CUDA build for Linux x86-64 that links the CUDA runtime dynamically".
"""

from __future__ import annotations

import ast
import json
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from vramdoc.errors import DeviceUnavailable, MissingDependency

OLDEST_RELEASE = (2, 6)
CUDA_MAJORS = (12, 13)
_INSTALL = "pip install 'torch>=2.6'"
_ELSEWHERE = "use a real GPU with --gpu cuda:0, or diagnose a snapshot, a recording or a crash text"


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """One installed CUDA build of torch."""

    version: str
    """As torch prints it: ``"2.14.1+cu130"``."""
    cuda: str
    """The CUDA release that it was built with: ``"13.0"``."""
    directory: Path
    """The package itself, ``.../site-packages/torch``."""
    site_packages: Path

    @property
    def release(self) -> str:
        """``"2.14"``: what decides how the allocator behaves."""
        return ".".join(self.version.split(".")[:2])

    @property
    def cuda_version(self) -> int:
        """CUDA's own numbering: 13000 for CUDA 13.0, 12040 for CUDA 12.4."""
        major, minor = (int(part) for part in self.cuda.split(".")[:2])
        return major * 1000 + minor * 10


def find_torch(
    python_executable: str | None = None, *, system: str | None = None, machine: str | None = None
) -> TorchBuild:
    """Find the CUDA build of torch that ``python_executable`` (this interpreter by default) would import.

    Args:
        python_executable: another interpreter whose torch is meant.
        system: the operating system; a seam for tests.
        machine: the processor; a seam for tests.

    Raises:
        DeviceUnavailable: the virtual GPU does not exist on this platform or for this build.
        MissingDependency: torch is not installed, or is a build without CUDA; the hint installs it.
    """
    where = (system or platform.system(), machine or platform.machine())
    if where != ("Linux", "x86_64"):
        raise DeviceUnavailable(
            f"the virtual GPU needs Linux on x86-64, and this is {where[0]} on {where[1]}",
            _ELSEWHERE,
        )
    directory = _torch_directory(python_executable)
    if directory is None:
        raise _no_torch(python_executable)
    return read_build(directory)


def installed_version(python_executable: str | None = None) -> str:
    """The version of whatever torch ``python_executable`` would import, on any platform: what a real GPU needs to know.

    Raises:
        MissingDependency: torch is not installed.
    """
    directory = _torch_directory(python_executable)
    version = _assigned_strings(directory / "version.py").get("__version__") if directory else None
    if version is None:
        raise _no_torch(python_executable)
    return version


def _no_torch(python_executable: str | None) -> MissingDependency:
    """Says which interpreter was asked: the one on the path is often not the one that has torch."""
    if python_executable is None:
        return MissingDependency("torch is not installed, so no model can be run", _INSTALL)
    found = shutil.which(python_executable) or python_executable
    return MissingDependency(
        f"{python_executable} ({found}) has no torch",
        f"name the Python that has it, or {found} -m {_INSTALL}",
    )


def read_build(directory: Path) -> TorchBuild:
    """Read what the torch package in ``directory`` says about itself.

    Raises:
        DeviceUnavailable: a build that the virtual GPU does not serve (ROCm, too old).
        MissingDependency: a build without CUDA, or no torch at all.
    """
    facts = _assigned_strings(directory / "version.py")
    version, cuda = facts.get("__version__"), facts.get("cuda")
    if version is None:
        raise MissingDependency(f"{directory} holds no torch that says its version", _INSTALL)
    if facts.get("hip"):
        raise DeviceUnavailable(
            f"torch {version} is a ROCm build; the virtual GPU stands in for NVIDIA's only",
            _ELSEWHERE,
        )
    if cuda is None:
        raise MissingDependency(
            f"torch {version} is a build without CUDA",
            f"replace it by the CUDA build, which needs no GPU: pip install --force-reinstall 'torch=={_plain(version)}'",
        )
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_RELEASE or int(cuda.split(".")[0]) not in CUDA_MAJORS:
        raise DeviceUnavailable(
            f"the virtual GPU knows torch 2.6 and newer with CUDA 12 or 13, and this is torch {version} with CUDA {cuda}",
            _INSTALL,
        )
    return TorchBuild(
        version=version, cuda=cuda, directory=directory, site_packages=directory.parent
    )


def _plain(version: str) -> str:
    """The version without its local part: PyPI's Linux wheel of it is the CUDA build."""
    return version.partition("+")[0]


def _torch_directory(python_executable: str | None) -> Path | None:
    if python_executable is None:
        spec = find_spec("torch")
        origin = spec.origin if spec is not None else None
    else:
        code = "import importlib.util, json; s = importlib.util.find_spec('torch'); print(json.dumps(s and s.origin))"
        try:
            answer = subprocess.run(
                [python_executable, "-c", code],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise MissingDependency(f"{python_executable} is not a Python that runs") from error
        origin = json.loads(answer.stdout.splitlines()[-1])
    return Path(origin).parent if origin else None


def _assigned_strings(path: Path) -> dict[str, str]:
    """Names that the module at ``path`` assigns string literals to."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[str, str] = {}
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text)))
            ):
                found[name] = text
            case _:
                pass
    return found
