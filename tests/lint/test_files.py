"""What a run looks at, and what becomes of a file that cannot be read: one line, never an exception."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.errors import UnreadableInput, UsageError
from vramdoc.lint import check_paths
from vramdoc.lint.check import check_text
from vramdoc.lint.files import LARGEST, CannotRead, Kind, decode, discover

LATE = """import os, torch
x = torch.zeros(8, device="cuda")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
"""


def reasons(folder: Path) -> list[tuple[str, str, int]]:
    return [(Path(u.path).name, u.reason, u.line) for u in check_paths([folder]).unreadable]


def test_a_syntax_error_is_one_line_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n", encoding="utf-8")
    ((name, reason, line),) = reasons(tmp_path)
    assert (name, line) == ("broken.py", 2)
    assert reason.startswith("not Python 3.")


def test_bytes_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"x = '\xff\xfe\x00'")
    (tmp_path / "null.py").write_bytes(b"x = 1\x00")
    (tmp_path / "claims.py").write_bytes(b"# coding: no-such-codec\nx = 1\n")
    assert [name for name, _, _ in reasons(tmp_path)] == ["binary.py", "claims.py", "null.py"]


def test_a_file_in_another_declared_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nname = 'é'\n".encode("latin-1"))
    assert check_paths([tmp_path]).files_checked == 1


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 3_000 + ")" * 3_000,
        "x = " + "-" * 50_000 + "1",
        "x = " + "+".join("1" * 60_000),
    ],
)
def test_nesting_beyond_the_parser_is_one_line_or_checked(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.py").write_text(f"import torch\n{text}\ny = x.resize_(3)\n", encoding="utf-8")
    result = check_paths([tmp_path])
    assert result.files_checked + len(result.unreadable) == 1


def test_a_huge_file_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "huge.py"
    with path.open("wb") as out:
        out.truncate(LARGEST + 1)
    ((_, reason, _),) = reasons(tmp_path)
    assert "MiB" in reason


def test_yaml_that_does_not_parse_is_one_line_if_it_names_a_variable(tmp_path: Path) -> None:
    (tmp_path / "chart.yaml").write_text(
        "{{ if }}\n- PYTORCH_CUDA_ALLOC_CONF: [\n", encoding="utf-8"
    )
    (tmp_path / "other.yaml").write_text("{{ if }}\n- [\n", encoding="utf-8")
    assert [name for name, _, _ in reasons(tmp_path)] == ["chart.yaml"]


def test_environments_caches_and_foreign_code_are_left_out(tmp_path: Path) -> None:
    for folder in (".git", "node_modules", "__pycache__", "env/lib", "venv", ".github/workflows"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    found = [f.path.relative_to(tmp_path).as_posix() for f in discover([tmp_path])]
    assert found == [".github/workflows/a.py"]


def test_a_file_named_twice_is_checked_once(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(LATE, encoding="utf-8")
    result = check_paths([tmp_path, path, path])
    assert (result.files_checked, len(result.violations)) == (1, 1)


def test_kinds_are_recognised_by_name_and_by_the_first_line(tmp_path: Path) -> None:
    setting = "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:5"
    for name, text in {
        "Dockerfile": f"FROM x\nENV {setting}\n",
        "gpu.Dockerfile": f"FROM x\nENV {setting}\n",
        "Dockerfile.cuda": f"FROM x\nENV {setting}\n",
        "run.sh": f"export {setting}\n",
        ".env": f"{setting}\n",
        ".env.local": f"{setting}\n",
        "c.yml": f"environment:\n  - {setting}\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = tmp_path / "launch"
    script.write_text(f"#!/bin/sh\nexport {setting}\n", encoding="utf-8")
    found = check_paths([tmp_path, script]).violations
    assert len(found) == 8
    assert {v.id for v in found} == {"VD004"}


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput):
        check_paths([tmp_path / "nothing.py"])


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "again").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dangling.py").symlink_to(tmp_path / "gone.py")
    assert check_paths([tmp_path]).files_checked == 0


def test_select_and_ignore_take_ids_and_beginnings_of_ids(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LATE, encoding="utf-8")
    assert check_paths([tmp_path], select=["VD001"]).violations
    assert check_paths([tmp_path], select=["vd0"]).violations
    assert not check_paths([tmp_path], select=["VD1"]).violations
    assert not check_paths([tmp_path], ignore=["VD001"]).violations
    with pytest.raises(UsageError):
        check_paths([tmp_path], select=["VD999"])


def test_an_ignore_comment_silences_its_line(tmp_path: Path) -> None:
    text = LATE.rstrip()
    for comment, left in {
        "# vramdoc: ignore": 0,
        "# vramdoc: ignore[VD001]": 0,
        "# vramdoc: ignore[VD002, vd001]": 0,
        "# vramdoc: ignore[VD101]": 1,
    }.items():
        assert len(check_text(f"{text}  {comment}\n")) == left, comment


def test_many_files_give_the_same_result_as_one_by_one(tmp_path: Path) -> None:
    for number in range(401):
        (tmp_path / f"m{number:03}.py").write_text(
            LATE if number % 50 == 0 else "x = 1\n", encoding="utf-8"
        )
    together = check_paths([tmp_path])
    alone = [v for f in sorted(tmp_path.iterdir()) for v in check_paths([f]).violations]
    assert list(together.violations) == alone
    assert together.files_checked == 401


def test_the_release_and_platform_decide_what_has_an_effect(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text("export PYTORCH_ALLOC_CONF=expandable_segments:True\n", encoding="utf-8")
    assert check_paths([path]).violations == ()
    assert [v.id for v in check_paths([path], torch_release="2.9").violations] == ["VD008"]
    assert [v.id for v in check_paths([path], platform="windows").violations] == ["VD008"]
    path.write_text("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:20\n", encoding="utf-8")
    assert check_paths([path], torch_release="2.13").violations == ()
    assert [v.id for v in check_paths([path], torch_release="2.9").violations] == ["VD004"]
    path.write_text("export PYTORCH_NO_CUDA_MEMORY_CACHING=0\n", encoding="utf-8")
    assert check_paths([path], torch_release="2.7").violations == ()
    assert [v.id for v in check_paths([path], torch_release="2.6").violations] == ["VD006"]


@given(st.binary(max_size=200), st.sampled_from(list(Kind)))
def test_any_bytes_decode_or_say_why(data: bytes, kind: Kind) -> None:
    try:
        assert isinstance(decode(data, kind), str)
    except CannotRead as refusal:
        (why,) = refusal.args
        assert why.isprintable()


WITHOUT_RIGHTS = """
import json, os
from pathlib import Path
from vramdoc.lint import check_paths
if os.geteuid() == 0:
    os.setuid(65534)  # nobody
print(json.dumps({Path(u.path).name: u.reason for u in check_paths(["."]).unreadable}))
"""


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs a child that gives up its rights")
def test_what_may_not_be_read_is_named_and_not_passed_over(tmp_path: Path) -> None:
    """A file, a folder whose names show but whose files do not, and one that cannot be listed."""
    for name in ("file.py", "unsearchable/inner.py", "unlistable/inner.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n", encoding="utf-8")
    for name, mode in (("file.py", 0o000), ("unsearchable", 0o444), ("unlistable", 0o111)):
        (tmp_path / name).chmod(mode)
    tmp_path.chmod(0o755)
    try:
        command = [sys.executable, "-c", WITHOUT_RIGHTS]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert json.loads(ran.stdout) == {
            "file.py": "Permission denied",
            "inner.py": "Permission denied",
            "unlistable": "a folder that cannot be listed",
        }
    finally:
        for name in ("unsearchable", "unlistable"):
            (tmp_path / name).chmod(0o755)
