"""The allocator setting that a refused one meant: what torch's own parser accepts of it, and nothing that nobody wrote.

It repairs wrong separators and misspelled switches, puts the nearest key in place of one that no release has, and leaves out what
the release cannot know. A value that is out of range is the person's to choose.
"""

from __future__ import annotations

import re

from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.allocator.options import KEYS, Kind
from vramdoc.allocator.releases import NEWEST, minor
from vramdoc.diagnose.settings import entries, nearest_key, release_of
from vramdoc.evidence.case import Case
from vramdoc.prescribe.snippets import settings_text


def corrected_setting(case: Case) -> str | None:
    """The string to set instead of the refused one: empty when nothing of it can stay, None where the text does not show it."""
    incident = case.crash.first("conf-error") if case.crash is not None else None
    if case.crash is None or incident is None:
        return None
    refused = refused_entry(case)
    written = case.crash.alloc_conf or refused
    if not re.search("[:=]", written):
        return None
    release = case.crash.torch_version
    too_new = refused if refused in KEYS and incident.wording == "unknown-key" else None
    repaired = {
        name: _value(name, value)
        for key_as_written, value in entries(re.sub(r"\s*=\s*", ":", written)).items()
        if (name := _name(key_as_written)) and name != too_new and _is_known(name, release)
    }
    text = settings_text(repaired)
    try:
        AllocatorConfig.parse(text)
    except ConfigError:
        return None
    return text


def refused_entry(case: Case) -> str:
    """What the error names: a key, or a whole entry where its separator is wrong; empty when it names nothing."""
    incident = case.crash.first("conf-error") if case.crash is not None else None
    key = incident.readings.get("key") if incident is not None else None
    return key.text if key is not None else ""


def _name(key: str) -> str | None:
    return key if key in KEYS else nearest_key(key)


def _value(name: str, value: str) -> str:
    return value.capitalize() if KEYS[name].kind is Kind.SWITCH else value


def _is_known(name: str, release: str | None) -> bool:
    """Whether the release has the option; an unknown release is taken for the newest."""
    known = release_of(release) is not None
    return minor(KEYS[name].introduced) <= minor(release if known and release else NEWEST)
