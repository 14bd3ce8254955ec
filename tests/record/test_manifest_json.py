"""Manifests survive the way to disk and back, also between versions; anything else is refused by name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramdoc.errors import UnreadableInput
from vramdoc.record.manifest_json import dump_manifest, load_manifest
from vramdoc.record.recording import (
    DeviceInfo,
    Exit,
    ExitKind,
    Manifest,
    Observation,
    Phase,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
count = st.integers(0, 1 << 62)
maybe = st.none() | count
plain = st.recursive(
    st.none() | st.booleans() | count | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
phases = st.builds(
    Phase,
    name=text,
    started_us=count,
    ended_us=maybe,
    active_peak_bytes=maybe,
    detail=st.dictionaries(text, count | text | st.floats(allow_nan=False, allow_infinity=False)),
)
manifests = st.builds(
    Manifest,
    created=text,
    tool_version=text,
    versions=st.dictionaries(text, text),
    platform=st.just({"system": "Linux"}),
    alloc_conf=text,
    device=st.none()
    | st.builds(
        DeviceInfo,
        kind=text,
        name=text,
        key=text,
        total_bytes=count,
        compute_capability=text,
        multiprocessors=count,
    ),
    workload=st.dictionaries(text, plain, max_size=3),
    exit=st.builds(Exit, kind=st.sampled_from(ExitKind), code=maybe, message=st.none() | text),
    phases=st.lists(phases, max_size=3).map(tuple),
    observations=st.lists(
        st.builds(
            Observation, kind=text, time_us=count, detail=st.dictionaries(text, plain, max_size=3)
        ),
        max_size=3,
    ).map(tuple),
    statistics=st.dictionaries(text, count),
    notes=st.lists(text, max_size=3).map(tuple),
    rank=maybe,
    duration_s=st.none() | st.floats(0, 1e9),
)


@given(manifests)
def test_a_manifest_comes_back_as_it_was(manifest: Manifest) -> None:
    assert load_manifest(dump_manifest(manifest)) == manifest


@given(manifests, st.dictionaries(st.text("xyz", min_size=5), plain, min_size=1))
def test_keys_of_a_later_version_survive(manifest: Manifest, later: dict[str, object]) -> None:
    data = json.loads(dump_manifest(manifest))
    read = load_manifest(json.dumps({**data, **later}))
    assert read.extra == later
    assert json.loads(dump_manifest(read)) == {**data, **later}


def test_a_later_key_inside_a_phase_is_ignored() -> None:
    manifest = load_manifest(
        '{"created": "", "tool_version": "", "versions": {}, "platform": {}, "alloc_conf": "",'
        ' "exit": {"kind": "success", "mood": 3}, "phases": [{"name": "a", "started_us": 1, "colour": []}]}'
    )
    assert manifest.phases == (Phase(name="a", started_us=1),)


GOOD = json.loads(
    '{"created": "", "tool_version": "", "versions": {}, "platform": {}, "alloc_conf": "", "exit": {"kind": "oom"}}'
)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"exit": {"kind": "vanished"}}, "exit.kind"),
        ({"exit": None}, "exit"),
        ({"exit": {}}, "exit"),
        ({"versions": []}, "versions"),
        ({"versions": {"torch": 2}}, "versions.torch"),
        ({"phases": {"name": "load"}}, "phases"),
        ({"phases": [{"name": "load", "started_us": "now"}]}, "phases[0].started_us"),
        ({"phases": [{"name": "load", "started_us": True}]}, "phases[0].started_us"),
        ({"phases": [{"name": "a", "started_us": 1, "detail": {"k": [1]}}]}, "phases[0].detail.k"),
        ({"statistics": {"num_ooms": 1.5}}, "statistics.num_ooms"),
        ({"rank": "0"}, "rank"),
    ],
)
def test_a_wrong_type_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(UnreadableInput, match=named.replace("[", r"\[")):
        load_manifest(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("missing", ["exit", "created", "alloc_conf"])
def test_a_missing_key_is_named(missing: str) -> None:
    with pytest.raises(UnreadableInput, match=missing):
        load_manifest(json.dumps({key: GOOD[key] for key in GOOD if key != missing}))


@pytest.mark.parametrize(
    "hostile", ["", "[]", "null", "{", '"x"', "[" * 200_000, '{"a":' * 50_000, b"\xff\xfe\x00"]
)
def test_what_is_no_manifest_is_refused(hostile: str | bytes) -> None:
    with pytest.raises(UnreadableInput):
        load_manifest(hostile)


def test_a_file_name_that_is_no_text_does_not_stop_a_manifest() -> None:
    manifest = load_manifest(json.dumps({**GOOD, "target": {"name": "m\udcff.safetensors"}}))
    assert "safetensors" in load_manifest(dump_manifest(manifest)).target["name"]
