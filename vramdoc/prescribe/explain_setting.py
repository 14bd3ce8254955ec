"""What an allocator settings string does on a release and a platform: each option accepted, ignored, in conflict or fatal there.

Whether torch accepts a string is asked of ``AllocatorConfig.parse``, which reads it as the release does; what an option does and
needs stands in ``allocator.options``. Here they are put side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from vramdoc.allocator.config import AllocatorConfig, ConfigError
from vramdoc.allocator.options import KEYS, Option
from vramdoc.allocator.releases import NEWEST, minor, rules_for
from vramdoc.diagnose.settings import FORMER, entries, nearest_key
from vramdoc.errors import UsageError
from vramdoc.prescribe.page import Page, Section
from vramdoc.prescribe.snippets import CUDA_VARIABLE

PLATFORMS = ("linux", "windows", "wsl", "rocm", "macos")
NATIVE_ONLY = frozenset(
    {
        "max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb", "roundup_power2_divisions",
        "garbage_collection_threshold", "expandable_segments", "expandable_segments_reserve",
    }
)  # fmt: skip
"""Options of PyTorch's own allocator; the cudaMallocAsync backend has none of them (allocator-spec 6.4)."""


class Status(str, Enum):
    """What becomes of an option."""

    ACCEPTED = "accepted"
    IGNORED = "ignored"
    CONFLICT = "conflict"
    FATAL = "fatal"
    UNCERTAIN = "uncertain"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionReading:
    """One entry of the string."""

    key: str
    value: str
    option: Option | None
    status: Status
    why: str


def setting_page(text: str, *, release: str | None = None, platform: str | None = None) -> Page:
    """Explain ``text`` (or a single option's name) for ``release`` (the newest known by default) on ``platform`` (Linux by default).

    Raises:
        UsageError: the release or the platform is not known.
    """
    release, platform = release or NEWEST, (platform or "linux").lower()
    rules_for(release)
    if platform not in PLATFORMS:
        raise UsageError(f"{platform} is not a known platform", f"known are {', '.join(PLATFORMS)}")
    if text in KEYS:
        return _option_page(KEYS[text], text)
    refusal = _refusal(text, release)
    readings = list(read_options(text, release=release, platform=platform))
    return Page(
        id="",
        kind="setting",
        title=f"{CUDA_VARIABLE}={text} on torch {release}, {platform}",
        sections=(
            Section(heading="As a whole", text=_whole(text, release, refusal, readings)),
            *(_option_section(reading) for reading in readings),
            Section(heading="Which variable", text=_variable(release, platform)),
        ),
        data={
            "text": text,
            "torch": release,
            "platform": platform,
            "accepted": refusal is None,
            "error": None
            if refusal is None
            else {"exception": refusal.exception, "reason": refusal.reason, "aborts_at_import": refusal.aborts},
            "options": [
                {
                    "key": r.key, "value": r.value, "status": str(r.status), "why": r.why,
                    "effect": r.option.effect if r.option else None,
                    "default": r.option.default if r.option else None,
                    "introduced": r.option.introduced if r.option else None,
                }
                for r in readings
            ],
        },
    )  # fmt: skip


def read_options(text: str, *, release: str, platform: str) -> Iterator[OptionReading]:
    """Each entry of ``text`` with what becomes of it, in the order of the string."""
    settings = entries(text)
    for key, value in settings.items():
        option = KEYS.get(key)
        status, why = _status(key, value, settings, release, platform)
        yield OptionReading(key=key, value=value, option=option, status=status, why=why)


def _status(
    key: str, value: str, settings: dict[str, str], release: str, platform: str
) -> tuple[Status, str]:
    option = KEYS.get(key)
    if option is None:
        return Status.FATAL, _unknown(key)
    if minor(option.introduced) > minor(release):
        return Status.FATAL, f"torch {release} does not know it; it came with {option.introduced}"
    if refusal := _refusal(f"{key}:{value}", release):
        return Status.FATAL, f"{refusal.exception}: {refusal.reason.strip()}"
    return _platform_status(option, value, release, platform) or _combined_status(option, settings, release, platform) or (
        Status.ACCEPTED, "in force" if value != option.default else "in force; it is the default"
    )  # fmt: skip


def _platform_status(
    option: Option, value: str, release: str, platform: str
) -> tuple[Status, str] | None:
    if platform == "macos":
        return (
            Status.IGNORED,
            "macOS has no CUDA allocator; MPS has variables of its own (PYTORCH_MPS_HIGH_WATERMARK_RATIO)",
        )
    if option.key != "expandable_segments" or value != "True":
        return None
    if platform == "windows":
        if minor(release) < (2, 14):
            return (
                Status.IGNORED,
                "Windows builds warn that it is not supported on this platform and go on without it",
            )
        return (
            Status.UNCERTAIN,
            "Windows builds ignored it up to torch 2.13; from 2.14 on it is not established: look for the warning",
        )
    if platform == "rocm" and minor(release) < (2, 12):
        return Status.IGNORED, "ROCm has it from torch 2.12 on, with ROCm 7"
    if platform == "wsl":
        return (
            Status.UNCERTAIN,
            "some WSL2 set-ups fail when memory is mapped that way (pytorch#192330)",
        )
    return None


def _combined_status(
    option: Option, settings: dict[str, str], release: str, platform: str
) -> tuple[Status, str] | None:
    """Options that cancel one another (allocator-spec 6.4)."""
    if settings.get("backend") == "cudaMallocAsync" and option.key in NATIVE_ONLY:
        return Status.IGNORED, "the cudaMallocAsync backend has no such option"
    expandable = settings.get("expandable_segments") == "True" and not _is_inert(platform, release)
    if expandable and option.key in {"max_split_size_mb", "garbage_collection_threshold"}:
        if minor(release) < (2, 5):
            return (
                Status.CONFLICT,
                "together with expandable_segments it trips an internal assert under memory pressure, up to torch 2.4",
            )
        return Status.IGNORED, "without effect on expandable segments"
    if (
        option.key == "garbage_collection_threshold"
        and "per_process_memory_fraction" not in settings
    ):
        return (
            Status.IGNORED,
            "it works only with a memory fraction, which this string does not set",
        )
    missing = [need for need in KEYS if need == option.needs and need not in settings]
    if missing:
        return Status.IGNORED, f"it works only together with {missing[0]}"
    return None


def _is_inert(platform: str, release: str) -> bool:
    """Whether expandable_segments:True does nothing there, so that the options which it would disable are in force."""
    status = _platform_status(KEYS["expandable_segments"], "True", release, platform)
    return status is not None and status[0] is Status.IGNORED


def _unknown(key: str) -> str:
    if key in FORMER:
        return f"it existed in torch {FORMER[key]} only"
    guess = nearest_key(key)
    return f"no release knows it; did you mean {guess}?" if guess else "no release knows it"


def _refusal(text: str, release: str) -> ConfigError | None:
    try:
        AllocatorConfig.parse(text, release=release)
    except ConfigError as error:
        return error
    return None


def _whole(
    text: str, release: str, refusal: ConfigError | None, readings: list[OptionReading]
) -> str:
    if refusal is None:
        idle = [r.key for r in readings if r.status in {Status.IGNORED, Status.CONFLICT}]
        tail = f" Without effect or in conflict: {', '.join(idle)}." if idle else ""
        return f"torch {release} accepts it.{tail}"
    moment = (
        "aborts the process in import torch"
        if refusal.aborts
        else "raises at the first use of CUDA"
    )
    return f"torch {release} refuses it and {moment}: {refusal.exception}: {refusal.reason.strip()}{_colon(text)}"


def _colon(text: str) -> str:
    """Entries written with = are the commonest mistake."""
    wrong = [part for part in text.split(",") if "=" in part and ":" not in part]
    if not wrong:
        return ""
    return f". Write {','.join(part.replace('=', ':', 1) for part in text.split(','))}: entries are key:value"


def _option_section(reading: OptionReading) -> Section:
    option = reading.option
    items = [f"{reading.status}: {reading.why}"]
    if option is not None:
        items += [
            f"what it does: {option.effect}",
            f"default: {option.default}; valid: {option.valid}; since torch {option.introduced}",
        ]
        if option.needs:
            items.append(f"needs: {option.needs}")
        if not option.device_memory:
            items.append("concerns host memory or locking only; it never changes device memory")
    return Section(heading=f"{reading.key}:{reading.value}", items=tuple(items))


def _option_page(option: Option, name: str) -> Page:
    items = [
        f"default: {option.default}",
        f"valid: {option.valid}",
        f"since torch {option.introduced}",
        "can be changed at run time" if option.run_time else "fixed once the allocator has started",
    ]
    if option.needs:
        items.append(f"needs: {option.needs}")
    if option.platforms:
        items.append(f"does nothing on: {option.platforms}")
    return Page(
        id=name,
        kind="setting",
        title=f"an option of {CUDA_VARIABLE}",
        sections=(
            Section(heading="What it does", text=option.effect),
            Section(heading="Facts", items=tuple(items)),
        ),
        data={"options": [{"key": option.key, "default": option.default, "introduced": option.introduced, "effect": option.effect}]},
    )  # fmt: skip


def _variable(release: str, platform: str) -> str:
    """allocator-spec 6.1, and the trap of 2.9."""
    number = minor(release)
    name = f"PYTORCH_HIP_ALLOC_CONF (or {CUDA_VARIABLE})" if platform == "rocm" else CUDA_VARIABLE
    if number < (2, 9):
        return f"Set {name}; torch {release} reads no other name."
    if number == (2, 9):
        return f"Set {name}. torch 2.9 warns that this name is deprecated in favour of PYTORCH_ALLOC_CONF, and yet reads only this one: following the warning loses the setting."
    return f"Set {name}. PYTORCH_ALLOC_CONF is read too, but only where {CUDA_VARIABLE} is not set; the two are not merged."
