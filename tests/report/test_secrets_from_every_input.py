"""Secrets planted in every kind of input on disk: the whole pipeline, every format, pictures and tables, and the other commands."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from safetensors.numpy import save_file

from examples.make_model import SHAPES
from tests.report.test_privacy import PLACES, SECRETS, TEXT
from vramdoc.capacity.plan import CapacityPlan
from vramdoc.capacity.request import CapacityRequest
from vramdoc.capacity.statement import make_statement
from vramdoc.checkpoint import read_checkpoint
from vramdoc.cli.diagnose import reproducing_command
from vramdoc.cli.publish import cleaned
from vramdoc.examine.compare import CompareRequest, compare_configs
from vramdoc.examine.comparison import difference
from vramdoc.examine.pipeline import examine
from vramdoc.examine.planning import Answer
from vramdoc.examine.request import DiagnoseRequest
from vramdoc.examine.sweep import SweepRequest, sweep_configs
from vramdoc.examine.target import recognise, recognise_all
from vramdoc.lint import check_paths
from vramdoc.lint.output import render as render_lint
from vramdoc.record.recording import (
    DeviceInfo,
    Exit,
    ExitKind,
    Manifest,
    Observation,
    write_manifest,
)
from vramdoc.report.capacity import render_capacity, render_capacity_json
from vramdoc.report.comparison import (
    render_comparison,
    render_comparison_json,
    render_comparison_markdown,
)
from vramdoc.report.contents import Report
from vramdoc.report.difference import (
    render_difference,
    render_difference_json,
    render_difference_markdown,
)
from vramdoc.report.formats import FORMATS
from vramdoc.report.frames import exported
from vramdoc.report.plots.pictures import drawings
from vramdoc.report.plots.style import THEMES
from vramdoc.report.statement import render_statement_markdown
from vramdoc.report.sweep import render_sweep, render_sweep_json, render_sweep_markdown
from vramdoc.report.to_terminal import render_terminal

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which "
    "1.00 GiB is free. Process 881 has 22.00 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by PyTorch, and "
    "1.50 GiB is reserved by PyTorch but unallocated."
)
TRACEBACK = f"""{TEXT}
Traceback (most recent call last):
  File "{PLACES[0]}", line 12, in <module>
    answer = model.generate("{SECRETS["prompt"]}", api_key="{SECRETS["openai"]}")
  File "{PLACES[1]}", line 40, in generate
    cache = torch.cat([cache, new])  # {SECRETS["email"]}
{MESSAGE}
"""
SCRIPT = f"""import os, sys, torch
os.environ["HF_TOKEN"] = "{SECRETS["hf"]}"
os.environ["PYTORCH_ALLOC_CONF"] = os.environ["MY_SERVICE_CONF"] = "max_split_size_mb:64"
client = "{SECRETS["client"]}"  # {SECRETS["email"]}, {SECRETS["host"]}
kept = []
for step in range(64):
    loss = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
    kept.append(loss)
    print("{SECRETS["prompt"]}", step, file=sys.stderr)
t = torch.frombuffer(bytearray(64), dtype=torch.uint8)
t.resize_(1000)
"""
SHELL = f"""export HF_TOKEN={SECRETS["hf"]}
export PYTORCH_CUDA_ALLOC_CONF=expandable_segment:True
python train.py --prompt "{SECRETS["prompt"]}"
"""
MIB = 1 << 20
BASE = 0x7F0000000000


def snapshot() -> dict[str, object]:
    """One full segment and the failure, every frame in somebody's home folder."""
    frames = [{"filename": place, "line": 7, "name": "forward"} for place in PLACES]
    block = {
        "address": BASE,
        "size": 16 * MIB,
        "requested_size": 16 * MIB,
        "state": "active_allocated",
        "frames": frames,
    }
    idle = {
        "address": BASE + 16 * MIB,
        "size": 4 * MIB,
        "requested_size": 0,
        "state": "inactive",
        "frames": [],
    }
    segment = {
        "device": 0, "address": BASE, "total_size": 20 * MIB, "allocated_size": 16 * MIB, "active_size": 16 * MIB,
        "requested_size": 16 * MIB, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
        "frames": frames, "blocks": [block, idle],
    }  # fmt: skip
    event = {"stream": 0, "time_us": 1, "frames": frames}
    trace = [
        {"action": "segment_alloc", "addr": BASE, "size": 20 * MIB, **event},
        {"action": "alloc", "addr": BASE, "size": 16 * MIB, **event},
        {"action": "oom", "addr": 3 * MIB, "size": 20 * MIB, "device_free": 3 * MIB, **event},
    ]
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "expandable_segments": False,
        "LAST_USER": SECRETS["variable"],
    }
    return {"segments": [segment], "device_traces": [trace], "allocator_settings": settings}


def manifest() -> Manifest:
    """A recording's manifest as a careless or hostile machine would have written it."""
    return Manifest(
        created="2026-12-01T10:15:00Z", tool_version="1", alloc_conf="",
        versions={"torch": "2.14.1", "python": "3.11"}, platform={"system": "Linux", "node": SECRETS["host"]},
        environment={"HF_TOKEN": SECRETS["hf"], "MY_SERVICE_SETTING": SECRETS["variable"], "USER": SECRETS["user"]},
        workload={"name": "script", "line": f"{PLACES[0]} --prompt '{SECRETS['prompt']}' --token {SECRETS['github']}"},
        target={"kind": "command", "name": PLACES[0]},
        exit=Exit(kind=ExitKind.OUT_OF_MEMORY, code=1, exception_type="OutOfMemoryError", message=MESSAGE, traceback=TRACEBACK),
        observations=(
            Observation(kind="resize", time_us=1, detail={"operation": "resize_", "tensor": "t", "file": PLACES[1], "line": 3,
                        "origin": {"kind": "file", "path": PLACES[0]}, "wanted_bytes": 10, "owned_bytes": 5}),
        ),
        notes=(TEXT,),
    )  # fmt: skip


def crash_text(folder: Path) -> list[Path]:
    """A pasted log."""
    path = folder / "crash.log"
    path.write_text(TRACEBACK, encoding="utf-8")
    return [path]


def crash_text_and_script(folder: Path) -> list[Path]:
    """The log with the program that printed it."""
    path = folder / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return [*crash_text(folder), path]


def snapshot_file(folder: Path) -> list[Path]:
    """A snapshot from another machine."""
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    return [path]


def snapshots_of_ranks(folder: Path) -> list[Path]:
    """Two of them, that only their folders tell apart."""
    for rank in ("rank0", "rank1"):
        (folder / rank).mkdir()
        snapshot_file(folder / rank)
    return [folder / rank / "snapshot.pickle" for rank in ("rank0", "rank1")]


def recording(folder: Path) -> list[Path]:
    """A recording from another machine."""
    path = folder / "20261201-101500-train"
    path.mkdir()
    write_manifest(path, manifest())
    for name in ("snapshot.pickle", "snapshot-oom.pickle"):
        (path / name).write_bytes(pickle.dumps(snapshot()))
    (path / "output.log").write_text(TRACEBACK, encoding="utf-8")
    return [path]


def recording_of_ranks(folder: Path) -> list[Path]:
    """The same of two processes."""
    [path] = recording(folder)
    shutil.copytree(path, path / "rank-1")
    return [path]


KINDS: dict[str, Callable[[Path], list[Path]]] = {
    "crash text": crash_text,
    "crash text and script": crash_text_and_script,
    "snapshot": snapshot_file,
    "snapshots of ranks": snapshots_of_ranks,
    "recording": recording,
    "recording of ranks": recording_of_ranks,
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's folder, on a machine whose user and host have names."""
    monkeypatch.setenv("LOGNAME", SECRETS["user"])
    monkeypatch.setattr("socket.gethostname", lambda: SECRETS["host"])
    folder = tmp_path / "home" / SECRETS["user"] / SECRETS["client"]
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(params=KINDS)
def report(request: pytest.FixtureRequest, home: Path) -> Report:
    """What the pipeline makes of one kind of input."""
    words = [str(path) for path in KINDS[request.param](home)]
    command = f"vramdoc diagnose {' '.join(words)} --prompt '{SECRETS['prompt']}'"
    return examine(DiagnoseRequest(target=recognise_all(words), trials=0, command=command))


def leaked(text: str) -> dict[str, str]:
    """Each secret found, with what stands around it."""
    return {
        name: text[max(0, text.index(s) - 80) :][:160] for name, s in SECRETS.items() if s in text
    }


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_no_format_of_any_input_shows_a_secret(report: Report, form: str) -> None:
    clean = cleaned(report)
    text = FORMATS[form].render(clean)
    if form == "terminal":
        text += render_terminal(clean, width=200, verbose=True)
    assert not leaked(text)


def test_no_table_shows_a_secret(report: Report) -> None:
    for content in exported(cleaned(report)).values():
        assert not leaked(content.decode("utf-8"))


def test_no_picture_shows_a_secret(home: Path) -> None:
    """One input is enough: what is drawn as text is the same few labels for all."""
    words = [str(path) for path in recording(home)]
    made = examine(DiagnoseRequest(target=recognise_all(words), trials=0))
    for drawing in drawings(cleaned(made)):
        figure = Figure()
        drawing.draw(figure, THEMES["light"])
        assert not leaked(" ".join(text.get_text() for text in figure.findobj(Text)))


def test_the_input_did_hold_secrets_and_shows_them_when_asked(home: Path) -> None:
    words = [str(path) for path in recording(home)]
    made = examine(DiagnoseRequest(target=recognise_all(words), trials=0))
    shown = FORMATS["json"].render(cleaned(made, include_private=True))
    assert len(leaked(shown)) > len(SECRETS) // 2


def every_comparison(home: Path) -> Iterator[tuple[str, Callable[[bool], str]]]:
    """Every other command's answer about the same recordings, in every form."""
    [first], [second] = recording(home), snapshot_file(home)
    command = f"vramdoc compare-alloc-configs {first} --token {SECRETS['github']}"
    compared = compare_configs(CompareRequest(target=recognise(str(second)), command=command))
    compared = replace(compared, workload=manifest().workload["line"], notes=(TEXT,))
    swept = sweep_configs(
        SweepRequest(
            paths=tuple(snapshots_of_ranks(home)), recordings=home / "kept", command=command
        )
    )
    differs = difference(str(first), str(second))
    for record, renderers in (
        (compared, (render_comparison, render_comparison_json, render_comparison_markdown)),
        (swept, (render_sweep, render_sweep_json, render_sweep_markdown)),
        (differs, (render_difference, render_difference_json, render_difference_markdown)),
    ):
        for render in renderers:
            yield (
                render.__name__,
                lambda private, r=record, to=render: to(cleaned(r, include_private=private)),
            )


def test_no_comparison_shows_a_secret_unless_asked(home: Path) -> None:
    for name, shown in every_comparison(home):
        assert not leaked(shown(False)), name
        assert "sweep" in name or leaked(shown(True)), name


def test_what_lint_says_of_a_source_holds_none_of_its_texts(home: Path) -> None:
    (home / "train.py").write_text(SCRIPT, encoding="utf-8")
    (home / "run.sh").write_text(SHELL, encoding="utf-8")
    result = check_paths([home])
    assert len(result.violations) >= 3
    for form in ("text", "json", "sarif", "github"):
        named = render_lint(result, form).replace(str(home), "")  # as it was typed: editors open it
        assert not leaked(named.replace(home.as_uri(), ""))


DEVICE = DeviceInfo(
    kind="virtual", name="virtual GPU of 1.00 GiB", key="1GiB", total_bytes=1 << 30, compute_capability="8.9", multiprocessors=128
)  # fmt: skip


def model_folder(home: Path) -> Path:
    """A model in two files: metadata, configuration, tokenizer and file names all say too much."""
    folder = home / "chat-model"
    folder.mkdir()
    build, values = SHAPES["tiny"]
    values = {**values, "num_hidden_layers": 1}
    tensors = {name: np.zeros(shape, np.float16) for name, shape in build(values)}
    names = sorted(tensors)
    shards = {
        f"{SECRETS['bucket']}-1.safetensors": names[::2],
        f"{SECRETS['bucket']}-2.safetensors": names[1::2],
    }
    metadata = {
        "format": "pt",
        "author": SECRETS["email"],
        "trained_on": f"{SECRETS['host']}:{PLACES[0]}",
    }
    for file, kept in shards.items():
        save_file({name: tensors[name] for name in kept}, folder / file, metadata)
    where = {name: file for file, kept in shards.items() for name in kept}
    index = {"metadata": {"author": SECRETS["email"]}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    private = {
        "_name_or_path": f"/home/{SECRETS['user']}/{SECRETS['client']}/llm",
        "hub_token": SECRETS["hf"],
    }
    (folder / "config.json").write_text(json.dumps({**values, **private}))
    (folder / "tokenizer.json").write_text(json.dumps({"chat_template": SECRETS["prompt"]}))
    return folder


@pytest.mark.virtual_gpu
def test_no_report_on_a_model_shows_a_secret(home: Path) -> None:
    folder = model_folder(home)
    made = examine(
        DiagnoseRequest(
            target=recognise(str(folder)), gpu="1GiB", trials=0, recordings=home / "kept",
            workload={"name": "load"}, command=f"vramdoc diagnose {folder}",
        )
    )  # fmt: skip
    for form in FORMATS.values():
        assert not leaked(form.render(cleaned(made)))
    assert leaked(repr(replace(made, case=replace(made.case, snapshot=None))))


def test_no_capacity_statement_shows_a_secret(home: Path) -> None:
    folder = model_folder(home)
    request = CapacityRequest(target=str(folder), contexts=(64,), sessions=(1,))
    plan = CapacityPlan(
        request=request, kv_bytes_per_token=1, cells=(), borders=(), budgets=(), device=DEVICE, versions={}, weight_bytes=0,
        run_by=TEXT, ms_per_token={}, notes=(TEXT,), workload_line=manifest().workload["line"],
    )  # fmt: skip
    answer = Answer(plan=plan, statement=make_statement(plan, read_checkpoint(folder)))
    clean = cleaned(answer)
    assert not leaked(render_capacity(clean.plan, width=160))
    assert not leaked(render_capacity_json(clean.plan, clean.statement.to_json()))
    assert not leaked(render_statement_markdown(clean.statement))
    assert leaked(render_statement_markdown(cleaned(answer, include_private=True).statement))


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("diagnose {home}/crash.log --report {home}/x.md", "vramdoc diagnose crash.log"),
        ("diagnose {home}/rank0/s.pickle {home}/rank1/s.pickle", "vramdoc diagnose rank0/s.pickle rank1/s.pickle"),
        ("diagnose --gpu 2GiB -- python {home}/t.py --data={home}/d.csv -n=1", "vramdoc diagnose --gpu 2GiB -- python t.py --data=d.csv -n=1"),
    ],
)  # fmt: skip
def test_the_command_that_reproduces_a_report_names_no_folder(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = typed.format(home="/home/jdoewright/client-initech").split()
    monkeypatch.setattr(sys, "argv", ["vramdoc", *words])
    target = (
        words[words.index("--") + 1 :] if "--" in words else [w for w in words[1:] if w[-1] in "eg"]
    )
    assert reproducing_command(target, Path(target[0]).name) == shown


@pytest.mark.virtual_gpu
def test_no_file_that_a_command_leaves_shows_a_secret(
    home: Path, vramdoc: Callable[..., Any]
) -> None:
    """From the command line, with every output at once."""
    program = home / "train.py"
    program.write_text(SCRIPT, encoding="utf-8")
    secret = {
        "LOGNAME": SECRETS["user"],
        "HF_TOKEN": SECRETS["hf"],
        "MY_SERVICE_SETTING": SECRETS["variable"],
    }
    done = vramdoc(
        "diagnose", "--gpu", "1GiB", "--trials", "0", "--report", home / "r.md", "--html", home / "r.html", "--plot", home / "plots",
        "--", sys.executable, program, "--token", SECRETS["github"], "--prompt", SECRETS["prompt"], env=secret,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "out of memory" in done.stdout.lower() or "capacity" in done.stdout.lower()
    assert not leaked(done.stdout)
    for path in (home / "r.md", home / "r.html", *(home / "plots").glob("*.svg")):
        assert not leaked(path.read_text(encoding="utf-8")), path
