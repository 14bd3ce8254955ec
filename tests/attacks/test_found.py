"""What fuzzing once stopped at, and the examples that it begins with: read or refused, every time."""

from pathlib import Path

import pytest

from tests.attacks.fuzz import FOUND, NAMES
from tests.attacks.readers import readers


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_read_or_refused(name: str, tmp_path: Path) -> None:
    reader = readers(tmp_path)[name]
    contents = [*reader.seeds(), *(path.read_bytes() for path in FOUND.glob(f"{name}-*"))]
    assert len(contents) > 10
    for content in contents:
        reader.read(content)


def test_the_fuzzer_names_every_reader(tmp_path: Path) -> None:
    assert list(readers(tmp_path)) == list(NAMES)
