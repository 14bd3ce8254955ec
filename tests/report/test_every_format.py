"""Every format over every sample report: whole, deterministic, and safe whatever the report holds."""

from __future__ import annotations

import json
import re

import pytest

from tests.report.samples import SAMPLES
from vramdoc.errors import UsageError
from vramdoc.report.formats import FORMATS, find_format
from vramdoc.report.to_github import render_github
from vramdoc.report.to_json import render_json
from vramdoc.report.to_terminal import render_terminal

every_sample = pytest.mark.parametrize("name", SAMPLES)


@every_sample
@pytest.mark.parametrize("form", sorted(FORMATS))
def test_every_format_renders_every_sample_the_same_way_twice(form: str, name: str) -> None:
    report = SAMPLES[name]()
    first = FORMATS[form].render(report)
    assert first
    assert first.endswith("\n")
    assert first == FORMATS[form].render(SAMPLES[name]())
    first.encode("utf-8")


@every_sample
@pytest.mark.parametrize("form", ["terminal", "markdown", "github"])
def test_no_control_character_reaches_a_reader(form: str, name: str) -> None:
    text = FORMATS[form].render(SAMPLES[name]())
    assert not re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", text)


@every_sample
@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
def test_no_line_is_an_order_to_a_ci_runner(form: str, name: str) -> None:
    lines = FORMATS[form].render(SAMPLES[name]()).splitlines()
    assert not [line for line in lines if line.lstrip().startswith(("::", "##["))]


@every_sample
@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("verbose", [False, True])
def test_the_terminal_report_keeps_its_width_but_for_what_is_pasted(
    name: str, width: int, *, verbose: bool
) -> None:
    if name in {"hostile", "huge"}:
        pytest.skip("their pasted commands are longer than any terminal")
    text = render_terminal(SAMPLES[name](), width=width, verbose=verbose)
    pasted = [
        s
        for p in SAMPLES[name]().prescriptions
        for s in (*p.snippets.values(), p.verification.command)
    ]
    for line in text.splitlines():
        assert len(line) <= width or any(line.strip() in snippet for snippet in pasted), line


@every_sample
def test_ascii_terminals_get_ascii(name: str) -> None:
    assert render_terminal(SAMPLES[name](), ascii_only=True, verbose=True).isascii()


def test_colour_only_adds_to_the_text() -> None:
    plain = render_terminal(SAMPLES["fragmentation"](), verbose=True)
    coloured = render_terminal(SAMPLES["fragmentation"](), verbose=True, colour=True)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"hostile", "huge"}))
def test_the_first_screen_answers_within_about_25_lines(name: str) -> None:
    lines = render_terminal(SAMPLES[name]()).splitlines()
    assert len(lines) <= 31  # with a map; without one 25 to 29
    assert SAMPLES[name]().headline[:40] in "\n".join(lines[:4])


def test_quiet_says_the_verdict_and_the_fix_only() -> None:
    text = render_terminal(SAMPLES["fragmentation"](), quiet=True)
    assert "FRAGMENTATION" in text
    assert "export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True'" in text
    assert "EVIDENCE" not in text


@every_sample
def test_annotations_hold_one_command_a_finding(name: str) -> None:
    report = SAMPLES[name]()
    lines = render_github(report).splitlines()
    assert len(lines) == max(1, len(report.confirmed))
    assert all(re.match(r"::(error|warning|notice) title=[^:,]*::", line) for line in lines)


@every_sample
def test_json_has_the_contract_keys_and_whole_bytes(name: str) -> None:
    report = SAMPLES[name]()
    data = json.loads(render_json(report), parse_constant=pytest.fail)
    assert data.keys() >= {
        "schema_version", "target", "primary", "verdicts", "prescriptions", "facts", "environment", "workload",
    }  # fmt: skip
    assert data["target"].keys() == {"kind", "name"}
    for verdict in data["verdicts"]:
        assert verdict.keys() >= {"id", "outcome", "severity", "confidence", "summary", "evidence"}
        for fact in verdict["evidence"]:
            assert fact.keys() >= {"name", "value", "unit", "source"}
            if fact["unit"] == "bytes":
                assert fact["value"] is None or isinstance(fact["value"], int)
    for prescription in data["prescriptions"]:
        assert prescription.keys() >= {"id", "title", "change", "verification"}
        assert prescription["verification"].keys() >= {"status", "by", "before", "after"}


def test_equal_runs_differ_only_under_timing() -> None:
    from dataclasses import replace

    report = SAMPLES["healthy"]()
    first, second = (
        json.loads(render_json(replace(report, recording=recording, timing={"examine_s": seconds})))
        for recording, seconds in (("20261201-a", 1.0), ("20261202-b", 2.0))
    )
    assert first.pop("timing") != second.pop("timing")
    assert first == second


def test_formats_are_found_by_name() -> None:
    assert find_format("json").name == "json"
    with pytest.raises(UsageError, match="no format 'pdf'"):
        find_format("pdf")
