"""Which entry points of the CUDA libraries a torch build could reach: read from its ELF symbol tables.

Each of them that the driver's C sources do not define becomes a refusal (see ``library``). This module does not know
what any of them does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile

from vramdoc.virtual_gpu.torch_build import TorchBuild

# Families that the driver replaces as a whole, and the error each one answers with when it is not modelled.
FAMILIES = (
    (re.compile(r"cublas[A-Z]"), 15),  # CUBLAS_STATUS_NOT_SUPPORTED
    (re.compile(r"(__)?cuda[A-Z]"), 801),  # cudaErrorNotSupported
    (re.compile(r"cu[A-Z]"), 801),  # CUDA_ERROR_NOT_SUPPORTED
    (re.compile(r"nvml[A-Z]"), 3),  # NVML_ERROR_NOT_SUPPORTED
)
# Pure functions of the real libraries: they touch no device, and what they return is not an error code.
_PURE = re.compile(
    r"cublas(Lt)?(Get(Version|CudartVersion|Property|Status)|(Get|Set)?Logger|Xerbla)"
    r"|cudaCreateChannelDesc|cuFile"
)
_LOOKED_UP = re.compile(rb"\0((?:cu[A-Z]|nvml[A-Z])[A-Za-z0-9_]{3,60})(?=\0)")
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size


def reachable_entry_points(build: TorchBuild) -> dict[str, int]:
    """Name and error code of each CUDA entry point that this torch imports, looks up, or could be handed.

    These are the undefined symbols of torch's own libraries, the names that ``libc10_cuda.so`` looks up while it runs,
    and everything that the CUDA runtime and cuBLAS beside it export, because other extensions call them too.
    """
    names: set[str] = set()
    for library in sorted((build.directory / "lib").glob("*.so")):
        names.update(_symbols(library, defined=False))
    names.update(
        match[1].decode()
        for match in _LOOKED_UP.finditer((build.directory / "lib" / "libc10_cuda.so").read_bytes())
    )
    for library in _cuda_libraries(build):
        names.update(_symbols(library, defined=True))
    return {name: code for name in sorted(names) if (code := _error_code(name)) is not None}


def _error_code(name: str) -> int | None:
    if _PURE.match(name):
        return None
    return next((code for family, code in FAMILIES if family.match(name)), None)


def _cuda_libraries(build: TorchBuild) -> Iterator[Path]:
    for folder in (build.site_packages / "nvidia").glob("*/lib"):
        for stem in ("libcudart", "libcublas", "libcublasLt"):
            yield from folder.glob(f"{stem}.so*")


def _symbols(library: Path, *, defined: bool) -> Iterator[str]:
    """Names in the dynamic symbol table of ``library`` that it defines, or that it wants from others."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        table, strings = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".dynstr")
        if table is None or strings is None:
            return
        text = strings.data()
        for offset, _info, _other, section, _value, _size in _SYMBOL.iter_unpack(table.data()):
            if (section != 0) == defined:
                yield text[offset : text.index(b"\0", offset)].decode("ascii", "replace")
