"""Compiling a library of ours: once, whole or not at all, by however many come at once, and one line when it cannot be."""

import ctypes
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from vramdoc.errors import MissingDependency, StorageProblem
from vramdoc.native import Library, build, load

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")

NO_COMPILER = {"PATH": ""}
LAST = "for last; do :; done"
"""The last argument is the file to make."""


@pytest.fixture
def library(tmp_path: Path) -> Library:
    source = tmp_path / "answer.c"
    source.write_text(
        '#include "answer.h"\n__attribute__((visibility("default"))) int answer(void) { return ANSWER; }\n'
    )
    header = tmp_path / "answer.h"
    header.write_text("#define ANSWER 42\n")
    return Library(
        title="the answer",
        name="answer",
        file="libanswer.so",
        sources=(source,),
        headers=(header,),
        links=("libquestion.so.1",),
    )


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def answer(path: Path) -> int:
    """Asked in a process of its own: a library stays loaded under its path."""
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    return int(subprocess.check_output([sys.executable, "-c", program, path], text=True))


def compiler(folder: Path, script: str) -> dict[str, str]:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {**os.environ, "CC": str(path)}


def test_it_is_found_again_under_every_name_and_without_a_compiler(library, cache) -> None:
    built = build(library, cache=cache)
    assert answer(built) == answer(built.with_name("libquestion.so.1")) == 42
    assert build(library, cache=cache, environment=NO_COMPILER) == built


def test_processes_that_come_at_once_end_with_one_whole_library(library, cache) -> None:
    with ProcessPoolExecutor(4) as pool:
        futures = [pool.submit(build, library, cache=cache) for _ in range(4)]
        built = {future.result() for future in futures}
    (path,) = built
    assert [folder.name for folder in (cache / "answer").iterdir()] == [path.parent.name]
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "libanswer.so",
        "libquestion.so.1",
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.headers[0].write_text("#define ANSWER 43\n"),
        lambda it: replace(it, flags=("-DOTHER",)),
        lambda it: replace(it, made_from="another torch"),
    ],
    ids=["a header", "a flag", "what it is generated from"],
)
def test_another_source_or_setting_is_another_library(library, cache, change) -> None:
    first = build(library, cache=cache)
    changed = change(library)
    other = changed if isinstance(changed, Library) else library
    assert build(other, cache=cache) != first


def test_the_compiler_asked_for_is_used_though_another_built_it_before(
    library, cache, tmp_path
) -> None:
    build(library, cache=cache)
    asked = compiler(tmp_path, f'touch {tmp_path}/used; exec cc "$@"')
    build(library, cache=cache, environment=asked)
    assert (tmp_path / "used").exists()


def test_a_generated_source_is_made_only_when_it_is_compiled(library, cache) -> None:
    made = []

    def generate() -> str:
        made.append(1)
        return '__attribute__((visibility("default"))) int more(void) { return 7; }\n'

    generated = replace(library, generate=generate, made_from="seven")
    path = build(generated, cache=cache)
    assert ctypes.CDLL(str(path)).more() == 7
    assert build(generated, cache=cache) == path
    assert made == [1]


def test_what_was_cleaned_away_in_part_is_built_again(library, cache) -> None:
    built = build(library, cache=cache)
    built.unlink()
    assert build(library, cache=cache) == built
    assert answer(built) == 42


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'x.c:1: error: no headers' >&2; exit 1", "error: no headers"),
        ("exit 1", "no message"),
        (r"printf 'x.c: \377 error' >&2; exit 1", "error"),
    ],
)
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    library, cache, tmp_path, script, said
) -> None:
    with pytest.raises(MissingDependency, match=f"cannot compile the answer: .*{said}"):
        build(library, cache=cache, environment=compiler(tmp_path, script))
    assert list((cache / "answer").iterdir()) == []


def test_a_compiler_killed_half_way_leaves_nothing_that_is_taken_for_whole(
    library, cache, tmp_path
) -> None:
    killed = compiler(tmp_path, f"{LAST}; echo half > $last; kill -9 $$")
    with pytest.raises(MissingDependency):
        build(library, cache=cache, environment=killed)
    assert list((cache / "answer").iterdir()) == []
    assert answer(build(library, cache=cache)) == 42


def test_without_a_compiler_one_line_says_so(library, cache) -> None:
    with pytest.raises(MissingDependency, match="the answer is compiled on first use") as caught:
        build(library, cache=cache, environment=NO_COMPILER)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["a file", "a folder that refuses"])
def test_a_cache_that_cannot_be_written_is_named(library, tmp_path, place) -> None:
    cache = tmp_path / "file" if place == "a file" else Path("/proc/no-cache")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageProblem, match="cannot write the cache"):
        build(library, cache=cache)


def test_a_user_without_a_home_gets_no_folder_named_tilde(library, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vramdoc.native.user_cache_path", lambda _: Path("~/.cache/vramdoc"))
    with pytest.raises(StorageProblem, match="no home"):
        build(library)
    assert not (tmp_path / "~").exists()


def test_what_cannot_be_had_or_loaded_is_none(library, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CC", str(tmp_path / "no-such-compiler"))
    assert load(library) is None
    monkeypatch.setenv("CC", compiler(tmp_path, f"{LAST}; echo text > $last")["CC"])
    load.cache_clear()
    assert load(library) is None
    load.cache_clear()
