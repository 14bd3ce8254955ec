"""Planted secrets go through every format and come out of none; what a reader needs stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.recorded import report_of
from tests.report.samples import read, verdict, with_stack
from vramdoc.crashlog.incident import CrashLog, Incident
from vramdoc.diagnose.verdict import Outcome
from vramdoc.evidence.attribution import worth
from vramdoc.evidence.case import Case
from vramdoc.evidence.oom import OomAnatomy
from vramdoc.facts import Fact, Source
from vramdoc.record.recording import Exit, ExitKind, Manifest, Observation
from vramdoc.report.contents import Report
from vramdoc.report.formats import FORMATS
from vramdoc.report.privacy import redact
from vramdoc.report.scrub import HIDDEN, Scrubber
from vramdoc.report.to_terminal import render_terminal
from vramdoc.snapshot.model import Frame

SECRETS = {
    "user": "jdoewright",
    "host": "gpu-box-17",
    "domain": "corp.example",
    "home": "/home/",
    "hf": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "openai": "sk-proj-abcdefghijklmnop1234",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "wandb": "0123456789abcdef0123456789abcdef01234567",
    "password": "correct-horse-battery",
    "email": "jane.doe@corp.example",
    "ipv4": "10.20.30.40",
    "ipv6": "2001:db8::8a2e:370:7334",
    "mac": "0a:1b:2c:3d:4e:5f",
    "uuid": "GPU-6a7b8c9d-1111-2222-3333-444455556666",
    "prompt": "merger with Contoso next Tuesday",
    "bucket": "acme-private-bucket",
    "url password": "hunter2pass",
    "variable": "value-off-the-list",
    "client": "client-initech",
}

TEXT = f"""jdoewright@gpu-box-17:~/client-initech/proj$ HF_TOKEN={SECRETS["hf"]} python train.py --prompt "{SECRETS["prompt"]}"
  File "/home/jdoewright/client-initech/proj/src/model.py", line 12, in forward
    out = model.generate("{SECRETS["prompt"]}", token='{SECRETS["github"]}')
  File "C:\\Users\\jdoewright\\client-initech\\x.py", line 3
gpu-box-17:881:902 [0] NCCL INFO Bootstrap : Using eth0:10.20.30.40<0> {SECRETS["ipv6"]} {SECRETS["mac"]}
mail {SECRETS["email"]} key {SECRETS["openai"]} {SECRETS["aws"]} {SECRETS["jwt"]} wandb {SECRETS["wandb"]} on {SECRETS["uuid"]}
s3://acme-private-bucket/ckpt https://jdoewright:hunter2pass@git.corp.example/x password: {SECRETS["password"]}
export MY_SERVICE_SETTING=value-off-the-list; run on gpu-box-17 as jdoewright
prompt = {SECRETS["prompt"]}
CUDA out of memory. Tried to allocate 2.00 GiB."""

PLACES = (
    "/home/jdoewright/client-initech/proj/train.py",
    "/home/jdoewright/client-initech/proj/src/model.py",
)


def planted() -> Report:
    """The secrets in every place a Report has for text."""
    base = report_of("fragmentation")
    assert base.case is not None
    assert base.case.oom_snapshot is not None
    snapshot = with_stack(
        replace(base.case.oom_snapshot, allocator_settings={"A_SETTING": "value-off-the-list"}),
        Frame(PLACES[1], 12, "forward"), Frame(PLACES[0], 3, "main"),
    )  # fmt: skip
    fact = Fact("source_line", TEXT, "text", Source.READ, f"{PLACES[0]}:12")
    rx = base.prescriptions[0]
    rx = replace(
        rx, title=TEXT, change=TEXT, risk=TEXT, limits=TEXT, snippets={"bash": TEXT},
        verification=replace(rx.verification, reason=TEXT, command=TEXT, after={"exit": TEXT}),
    )  # fmt: skip
    variables = {"HOME": "/home/jdoewright", "MY_SERVICE_SETTING": "value-off-the-list", "CUDA_VISIBLE_DEVICES": "0,1",
                 "https_proxy": "http://10.20.30.40:3128"}  # fmt: skip
    manifest = Manifest(
        created="2026-12-01T10:15:00Z", tool_version="1", versions={"torch": "2.14.1"}, platform={"system": "Linux"},
        alloc_conf="", environment=variables, workload={"prompt": SECRETS["prompt"], "name": "chat"},
        exit=Exit(kind=ExitKind.OUT_OF_MEMORY, message=TEXT, traceback=TEXT),
        observations=(Observation(kind="resize", time_us=1, detail={"origin": {"path": PLACES[0]}, "token": SECRETS["hf"]}),),
        notes=(TEXT,),
    )  # fmt: skip
    incident = Incident(kind="cuda-oom", wording="w", readings={}, start=0, end=1, text=TEXT)
    crash = CrashLog(incidents=(incident,), encoding="utf-8", characters=1, source_lines=(TEXT,))
    return replace(
        base, target_name=PLACES[0], headline=TEXT, facts=(fact, read("requested", 5, TEXT)), command=TEXT, notes=(TEXT,),
        missing=(TEXT,), recording="20261201-train", prescriptions=(rx,),
        verdicts=(
            verdict("fragmentation", Outcome.CONFIRMED, TEXT, evidence=(fact,), notes=(TEXT,)),
            verdict("leak", Outcome.UNDECIDED, TEXT, missing=(TEXT,)),
        ),
        environment={"variables": variables, "torch": "2.14.1", "list": [TEXT]},
        workload={"line": TEXT, "prompt": SECRETS["prompt"], "messages": [SECRETS["prompt"]], "context": 2048},
        case=Case(
            kind="recording", name=PLACES[0], manifest=manifest, snapshot=snapshot, crash=crash, oom_snapshot=snapshot,
            oom=OomAnatomy(requested=read("requested", 1, TEXT), text=TEXT), missing=(TEXT,),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_no_planted_secret_comes_out_of_any_format(form: str) -> None:
    clean = redact(planted())
    text = FORMATS[form].render(clean)
    if form == "terminal":
        text += render_terminal(clean, verbose=True, width=160)
    found = {
        name: text[max(0, text.index(s) - 60) :][:120] for name, s in SECRETS.items() if s in text
    }
    assert not found


def test_no_planted_secret_stays_anywhere_in_the_report() -> None:
    """Not even where no renderer of today looks."""
    text = repr(redact(planted()))
    assert not {
        name: text[max(0, text.index(s) - 80) :][:160] for name, s in SECRETS.items() if s in text
    }


def test_include_private_shows_all() -> None:
    text = FORMATS["json"].render(redact(planted(), include_private=True))
    assert all(secret in text for secret in SECRETS.values())


def test_include_private_still_neutralises_control_characters() -> None:
    report = replace(report_of("fragmentation"), headline="\x1b[2Jgone\x07")
    assert redact(report, include_private=True).headline == "gone\\x07"


def test_redacting_twice_changes_nothing_more() -> None:
    once = redact(planted())
    assert FORMATS["json"].render(redact(once)) == FORMATS["json"].render(once)


def test_what_the_reader_needs_stays() -> None:
    base = report_of("fragmentation")
    assert FORMATS["markdown"].render(redact(base)) == FORMATS["markdown"].render(base)


@pytest.mark.parametrize(
    "text",
    [
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128",
        "CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 CUDA_LAUNCH_BLOCKING=1 python train.py",
        "KV bytes per token: 131072; new_tokens=32 --new-tokens 32 --max-prompt-length 512",
        "nvidia-cublas-cu12==12.4.5.8 and cuDNN 9.1.0.70, driver 550.54.15",
        "It took 10:15:00, 1:2:3 and 12 tokens/s on and/or off",
        "see https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
        "/usr/lib/x86_64-linux-gnu/libcublas.so.12 was loaded from /usr/local/cuda/lib64",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB",
        "Process 12345 has 3.00 GiB memory in use.",
        'panicked at Generation("Allocation on device 0 would exceed allowed memory. (out of memory)")',
        "model-00001-of-00004.safetensors, 7f0000000000, _ZN3c104cuda20CUDACachingAllocator6Native",
    ],
)
def test_harmless_text_is_left_as_it_is(text: str) -> None:
    assert Scrubber(texts=[text])(text) == text


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/ann/proj/train.py", "train.py"),
        ("/usr/lib/python3.11/threading.py", ".../python3.11/threading.py"),
        ("/home/ann/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", ".../site-packages/torch/nn/modules/linear.py"),
        ("C:\\Users\\Ann Smith\\proj\\train.py", "train.py"),
        ("C:\\Users\\Ann Smith\\AppData\\Local\\Programs\\Python\\Python311\\Lib\\threading.py", ".../Lib/threading.py"),
        ("\\\\fileserver\\share\\x\\model.safetensors", "model.safetensors"),
        ("~/proj/model.safetensors", "model.safetensors"),
        ("/mnt/c/Users/Ann/.cache/huggingface/hub/models--a--b/snapshots/x/model.safetensors", "model.safetensors"),
        ("/opt/builds/pytorch/c10/cuda/CUDACachingAllocator.cpp", ".../c10/cuda/CUDACachingAllocator.cpp"),
        ("/dev/shm/torch_12_34", "/dev/shm/torch_12_34"),
    ],
)  # fmt: skip
def test_a_path_is_cut_to_its_own_part(path: str, shown: str) -> None:
    scrub = Scrubber(texts=[f'File "{path}", line 1'])
    assert scrub(f'File "{path}", line 1') == f'File "{shown}", line 1'


def test_files_of_one_project_keep_their_folders_below_it() -> None:
    texts = [
        "/home/ann/a/proj/train.py:3",
        "/home/ann/a/proj/src/model.py:9",
        "/home/ann/a/proj/src/deep/x.py",
    ]
    scrub = Scrubber(texts=texts)
    assert [scrub(t) for t in texts] == ["train.py:3", "src/model.py:9", "src/deep/x.py"]


def test_libraries_are_still_told_from_the_persons_own_files() -> None:
    paths = [
        "/home/ann/p/train.py",
        "/home/ann/v/lib/python3.11/site-packages/torch/nn/x.py",
        "/usr/lib/python3.11/x.py",
    ]
    scrub = Scrubber(texts=paths)
    before = [worth(Frame(path, 1, "f")) for path in paths]
    assert [worth(Frame(scrub(path), 1, "f")) for path in paths] == before


def test_a_name_learned_in_one_place_is_hidden_in_all() -> None:
    scrub = Scrubber(texts=["/home/annlee/x.py", "NODE", "annlee@node042:~$ ls"])
    assert scrub("annlee waits for node042") == f"{HIDDEN} waits for {HIDDEN}"


@given(st.text(max_size=200))
def test_scrubbing_never_fails_and_is_stable(text: str) -> None:
    scrub = Scrubber(texts=[text])
    once = scrub(text)
    assert scrub(once) == once or HIDDEN in once
