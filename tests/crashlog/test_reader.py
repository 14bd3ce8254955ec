"""Whole texts: tracebacks, settings, surroundings, repetition, and logs larger than a window."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashlog.messages import GIB, MIB, Numbers, sentences
from tests.crashlog.noise import NOISES
from vramdoc.crashlog import parse, read_text
from vramdoc.crashlog.reader import OVERLAP, WINDOW
from vramdoc.errors import UnreadableInput

TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/train.py", line 12, in <module>
    main()
  File "/srv/venv/lib/python3.11/site-packages/transformers/cache_utils.py", line 96, in update
    self.keys = torch.cat([self.keys, key_states], dim=-2)
torch.OutOfMemoryError: """


def test_the_traceback_of_the_failure_comes_with_its_source_lines():
    log = parse(
        '  File "other.py", line 1, in x\n    y()\nValueError: no\n'
        + "filler\n" * 400
        + TRACEBACK
        + sentences(Numbers())
        + "\n"
    )
    assert [frame[1:] for frame in log.frames] == [(12, "<module>"), (96, "update")]
    assert log.source_lines == ("main()", "self.keys = torch.cat([self.keys, key_states], dim=-2)")


def test_a_fault_handler_prints_its_innermost_frame_first():
    text = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n  File "a.py", line 3 in grow\n  File "a.py", line 9 in main\n'
    assert [frame[2] for frame in parse(text).frames] == ["main", "grow"]


@pytest.mark.parametrize(
    "noise", ["journald", "a quoted mail", "pytest", "logging on each line", "torchrun", "JSON"]
)
def test_a_traceback_is_read_with_its_source_lines_through_what_a_console_adds(noise: str):
    log = parse(NOISES[noise](TRACEBACK + sentences(Numbers())))
    assert [frame[1:] for frame in log.frames[-2:]] == [(12, "<module>"), (96, "update")]
    assert log.source_lines[-1] == "self.keys = torch.cat([self.keys, key_states], dim=-2)"


def test_a_process_id_of_a_system_log_is_no_rank():
    (incident,) = parse(NOISES["journald"](sentences(Numbers()))).incidents
    assert incident.rank is None


def test_the_frames_of_a_traceback_that_rich_has_drawn_are_read():
    text = """╭────────── Traceback (most recent call last) ──────────╮
│ /srv/app/web.py:30 in answer                          │
│                                                       │
│   27 def answer(prompt):                              │
│ ❱ 30 │   reply = model.chat(prompt, history)          │
│   31 │   return reply                                 │
│                                                       │
│ /srv/venv/lib/python3.10/site-packages/model/layer.py:210 │
│ in attention                                          │
│                                                       │
│ ❱ 210 │   │   key = torch.cat((past_key, key), dim=0) │
╰───────────────────────────────────────────────────────╯
RuntimeError: CUDA error: out of memory
"""
    log = parse(text)
    assert [frame[1:] for frame in log.frames] == [(30, "answer"), (210, "attention")]
    assert log.source_lines == (
        "reply = model.chat(prompt, history)",
        "key = torch.cat((past_key, key), dim=0)",
    )


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("[run_64 epoch 3, it 4120, t 1.1] loss = 1.03", 4120),
        ("train iter: 900 loss 0.1", 900),
        (" 37%|###7      | 412/1100 [00:12<00:20]", 412),
        ("I ran it 300 times, and it 12 GiB large", None),
    ],
)
def test_how_far_a_run_had_come_is_read_from_its_log(line: str, step: int | None):
    seen = [o for o in parse(f"{line}\n{sentences(Numbers())}").observations if o.kind == "progress"]  # fmt: skip
    assert [o.readings["iteration"].value for o in seen] == ([] if step is None else [step])


def test_notebook_lines_are_visible_code():
    text = "      1 size = 30000\n----> 2 b = torch.randn(size, size, device=device)\n\nRuntimeError: CUDA error: out of memory\n"
    assert parse(text).code == ("size = 30000", "b = torch.randn(size, size, device=device)")


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "max_split_size_mb:128"),
        ('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True,backend:native"', "expandable_segments:True,backend:native"),
        ('$env:PYTORCH_ALLOC_CONF = "expandable_segments:True"', "expandable_segments:True"),
        (sentences(Numbers()), None),
        ("try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid it", None),
    ],
)  # fmt: skip
def test_a_setting_is_told_from_advice(text: str, setting: str | None):
    assert parse(text).alloc_conf == setting


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("PyTorch version: 2.3.1+cu121", "2.3.1"),
        ("torch==2.6.0", "2.6.0"),
        ("Using torch 2.1.0", "2.1.0"),
        ("torchvision 0.15.2", None),
    ],
)
def test_a_stated_torch_release_is_read(text: str, version: str | None):
    assert parse(text).torch_version == version


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        (r"File C:\Users\x\venv\lib\site-packages\torch\cuda\__init__.py", "windows"),
        ("File /mnt/c/work/train.py", "wsl"),
        ('File "/usr/lib/python3/dist-packages/torch/x.py"', "linux"),
        ("MPS backend out of memory (MPS allocated: 1 GB)", "macos"),
        ("nothing to see", None),
    ],
)
def test_paths_give_the_platform_away(text: str, platform: str | None):
    assert parse(text).platform == platform


def test_a_repeated_failure_is_one_incident():
    text = (sentences(Numbers()) + "\n") * 30
    (incident,) = parse(text).incidents
    assert incident.repeated == 30


class _Stream(io.RawIOBase):
    """Bytes made as they are read, so that a large log costs no memory of its own."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, b"")):
            self._left += piece
        taken, self._left = self._left[:size], self._left[size:]
        return taken


def _log(megabytes: int, message: str, end: bytes) -> Iterator[bytes]:
    line = b"2024-06-28 06:11:52 INFO step 123: everything is as it was a moment ago, more or less"
    line += end
    block = line * ((1 << 20) // len(line))
    for number in range(megabytes):
        yield block
        if number == megabytes // 2:
            yield f"ERROR {message}".encode() + end


@pytest.mark.parametrize("end", [b"\n", b" "], ids=["lines", "one line"])
def test_a_log_of_many_windows_is_read_in_little_memory(end: bytes):
    size = 12
    message = sentences(Numbers(requested=123 * MIB, process=21 * GIB))
    tracemalloc.start()
    log = read_text(_Stream(_log(size, message, end)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.characters > size * 10**6
    (incident,) = log.incidents
    assert incident.readings["requested"].value == 123 * MIB
    assert peak < 40 * MIB


@pytest.mark.parametrize("shift", [-2000, -OVERLAP, -300, -1, 0, 1])
def test_a_message_across_the_border_of_two_windows_is_read_once_and_whole(shift: int):
    message = sentences(Numbers(process=21 * GIB))
    border = WINDOW
    line = "x" * 79 + "\n"
    before = (line * (border // len(line)))[: border + shift - len("\n")] + "\n"
    text = before + message + "\n" + line * (2 * WINDOW // len(line))
    log = parse(text)
    (incident,) = log.incidents
    assert incident.repeated == 1
    assert incident.readings["unallocated"].value == 300 * MIB
    reading = incident.readings["process"]
    assert text[reading.start : reading.end] == reading.text


def test_an_unreadable_path_is_an_error_of_one_line(tmp_path: Path):
    with pytest.raises(UnreadableInput, match="cannot be read"):
        read_text(tmp_path / "absent.log")
    empty = tmp_path / "empty.log"
    empty.touch()
    with pytest.raises(UnreadableInput, match="empty"):
        read_text(empty)


def test_a_number_that_looks_like_an_exit_code_costs_nothing_and_a_real_one_is_found_in_any_window():
    line = "step 137 of 1000: loss 0.31, lr 1e-9, everything as it was a moment ago\n"
    noise = line * (3 * WINDOW // 2 // len(line))
    assert parse(noise).incidents == ()
    (found,) = parse(noise + "Process finished with exit code 137\n" + noise).incidents
    assert found.kind == "killed"
