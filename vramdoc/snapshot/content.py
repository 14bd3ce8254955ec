"""What a file holds, as a name: two files of one content have the same. It reads no format."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE = 1 << 20


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
