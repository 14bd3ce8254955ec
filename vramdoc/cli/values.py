"""Option texts to values, with one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramdoc.errors import UsageError
from vramdoc.units import parse_bytes, parse_count

WORKLOADS = ("chat", "prefill", "fill", "load", "encode", "train", "serve")
CACHES = ("dynamic", "static", "chunked", "paged", "sliding", "int8", "int4", "fp8", "offloaded")
DTYPES = ("float32", "float16", "bfloat16")


def choice(flag: str, value: str, allowed: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``allowed``.

    Raises:
        UsageError: it is not.
    """
    if value not in allowed:
        raise UsageError(f"{flag} {value!r} is not known", f"choose from {', '.join(allowed)}")
    return value


def count(flag: str, text: str) -> int:
    """Read a token count such as ``8k``.

    Raises:
        UsageError: it is not a positive whole number.
    """
    try:
        return parse_count(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def size(flag: str, text: str) -> int:
    """Read a size such as ``2GiB`` in bytes.

    Raises:
        UsageError: it is not a size.
    """
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def counts(flag: str, text: str) -> list[int]:
    """Read a comma-separated list of counts, ascending and without repeats."""
    return sorted(
        {count(flag, part) for part in text.split(",") if part.strip() or text.strip() == ""}
    )


def workload_fields(
    *,
    name: str | None,
    context: str | None,
    sessions: int | None,
    new_tokens: int | None,
    batch: int | None,
    cache: str | None,
    dtype: str | None,
    seed: int | None,
) -> dict[str, Any]:
    """The WorkloadSpec fields that the person set.

    Raises:
        UsageError: one of them cannot be used.
    """
    fields: dict[str, Any] = {}
    if name is not None:
        fields["name"] = choice("--workload", name, WORKLOADS)
    if context is not None:
        fields["context"] = count("--context", context)
    for flag, value in (("sessions", sessions), ("new_tokens", new_tokens), ("batch", batch)):
        if value is not None:
            if value < 1:
                raise UsageError(f"--{flag.replace('_', '-')} {value} is not a positive number")
            fields[flag] = value
    if cache is not None:
        fields["cache"] = choice("--cache", cache, CACHES)
    if dtype is not None:
        fields["dtype"] = choice("--dtype", dtype, DTYPES)
    if seed is not None:
        fields["seed"] = seed
    return fields
