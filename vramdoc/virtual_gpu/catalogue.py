"""GPUs that people own or rent: what a virtual one pretends to be, and where each figure comes from.

The data is ``gpus.toml`` beside this module. It does not know which real devices this machine has; see ``record``.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vramdoc.errors import UsageError
from vramdoc.units import GIB, format_bytes, parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PAGE = 2 << 20
_SMALLEST, _LARGEST = 1 * GIB, 1024 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One model of GPU. All sizes in bytes."""

    key: str
    """What follows ``--gpu``: ``"rtx4090"``, ``"24GiB"``."""
    name: str
    """As CUDA names it: ``"NVIDIA GeForce RTX 4090"``."""
    total_bytes: int
    """Total memory as ``cudaMemGetInfo`` reports it on Linux, which is less than what is printed on the box."""
    compute_capability: str
    multiprocessors: int
    context_bytes: int
    """What the CUDA context of a process with PyTorch takes."""
    cublas_handle_bytes: int
    """What ``cublasCreate`` takes, for each handle."""
    aliases: tuple[str, ...] = ()
    """Other spellings for ``--gpu``."""
    sources: Mapping[str, str]
    """Where each figure comes from, by field; ``"estimated"`` begins those that nobody measured."""

    @property
    def total_is_estimated(self) -> bool:
        """Whether the total is a guess from the marketed size and not a reported figure."""
        return self.sources["total_bytes"].startswith("estimated")


def _load(text: str) -> dict[str, GpuModel]:
    data = tomllib.loads(text)
    defaults: dict[str, Any] = data["defaults"]
    models = {}
    for key, entry in data["gpu"].items():
        models[key] = GpuModel(
            key=key,
            name=entry["name"],
            total_bytes=entry["total_bytes"],
            compute_capability=entry["compute_capability"],
            multiprocessors=entry["multiprocessors"],
            context_bytes=entry.get("context_bytes", defaults["context_bytes"]),
            cublas_handle_bytes=entry.get("cublas_handle_bytes", defaults["cublas_handle_bytes"]),
            aliases=tuple(entry.get("aliases", ())),
            sources=MappingProxyType({**defaults["sources"], **entry["sources"]}),
        )
    return models


CATALOGUE: Mapping[str, GpuModel] = MappingProxyType(
    _load(Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8"))
)
"""Every model, in the catalogue's order: GeForce by generation, then workstation, then data centre."""


def find_gpu(text: str) -> GpuModel:
    """The model that a person means by ``text``: a key, a name, or a size such as ``24GiB``.

    Raises:
        UsageError: no such model; the hint names the nearest ones.
    """
    if re.match(r"\s*[0-9.]+\s*[A-Za-z]+\s*\Z", text) and _normal(text) not in _BY_SPELLING:
        return _generic(text)
    found = _BY_SPELLING.get(_normal(text))
    if found is None:
        near = difflib.get_close_matches(_normal(text), _BY_SPELLING, n=3, cutoff=0.5)
        keys = list(dict.fromkeys(_BY_SPELLING[spelling].key for spelling in near))
        hint = (
            f"did you mean {' or '.join(keys)}?" if keys else "write for example rtx4090 or 24GiB"
        )
        raise UsageError(f"unknown GPU {text!r}", f"{hint} `vramdoc gpus` lists all")
    return found


def _generic(text: str) -> GpuModel:
    """A device of exactly that size; everything else is the generation most common among today's GPUs."""
    try:
        total = parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"unknown GPU {text!r}", str(error)) from error
    if not _SMALLEST <= total <= _LARGEST:
        raise UsageError(
            f"a GPU of {format_bytes(total)} is not one to simulate",
            f"sizes from {format_bytes(_SMALLEST)} to {format_bytes(_LARGEST)} work",
        )
    total -= total % _PAGE
    model = CATALOGUE["rtx4090"]
    asked = "as asked for on the command line"
    like = f"as of {model.name}"
    return GpuModel(
        key=text.strip(),
        name=f"virtual GPU of {format_bytes(total)}",
        total_bytes=total,
        compute_capability=model.compute_capability,
        multiprocessors=model.multiprocessors,
        context_bytes=model.context_bytes,
        cublas_handle_bytes=model.cublas_handle_bytes,
        sources=MappingProxyType(
            {
                **model.sources,
                "total_bytes": asked,
                "compute_capability": like,
                "multiprocessors": like,
            }
        ),
    )


def _normal(text: str) -> str:
    """``"NVIDIA GeForce RTX 4090"``, ``"RTX-4090"`` and ``"rtx4090"`` are one spelling."""
    return re.sub(r"[^a-z0-9]|nvidia|geforce|tesla|quadro", "", text.lower())


_BY_SPELLING = {
    spelling: model
    for model in CATALOGUE.values()
    for spelling in map(_normal, (model.name, model.key, *model.aliases))
}
