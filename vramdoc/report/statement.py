"""The capacity statement as the Markdown block that a team publishes. It knows nothing that the statement does not say."""

from __future__ import annotations

from vramdoc.capacity.statement import CapacityStatement, Supported
from vramdoc.report.to_markdown import code, table, text
from vramdoc.units import format_bytes


def render_statement_markdown(statement: CapacityStatement) -> str:
    """The block that a team publishes; a model's name, like all foreign text, formats nothing."""
    versions = ", ".join(
        f"{name} {version}" for name, version in sorted(statement.versions.items())
    )
    size, name = format_bytes(statement.device_bytes), statement.device
    device = name if size in name else f"{name}, {size} ({statement.device_kind})"
    items = (
        ("Model", f"revision {code(statement.revision)}, {text(statement.dtype)}, weights {format_bytes(statement.weight_bytes)}"),
        ("KV cache", f"{format_bytes(statement.kv_bytes_per_token)} a token as computed, kept by strategy {code(statement.cache)}"),
        ("Device", text(device)),
        ("Versions", text(versions)),
        ("Allocator", code(statement.alloc_conf or "default")),
        ("Workload", code(statement.workload)),
    )  # fmt: skip
    rows = [
        [
            f"{row['context']:,}",
            str(row["sessions"]),
            _held(row),
            format_bytes(row["headroom_bytes"]),
            _condition(row),
        ]
        for row in statement.supported
    ]
    parts = [
        f"### Capacity of {code(statement.model)}",
        "\n".join(f"- **{what}** {said}" for what, said in items),
        table(["Context (tokens)", "Sessions", "One keeps", "Left at the peak", "Beyond"], rows),
        _how_known(statement),
    ]
    parts += [
        f"{item['sessions']} sessions of {item['context']:,} tokens fit only with {code(item['alloc_conf'] or item['cache'])}."
        for item in statement.only_with
    ]
    parts += [
        f"A token takes {time} ms at {text(context)} tokens, one session at a time."
        for context, time in sorted(statement.ms_per_token.items(), key=lambda item: int(item[0]))
    ]
    if statement.device_kind != "real":
        parts.append("Memory only: a virtual device tells no times.")
    return "\n\n".join(parts) + "\n"


def _held(row: Supported) -> str:
    held = row.get("session_bytes")
    return "not known" if held is None else format_bytes(held)


def _condition(row: Supported) -> str:
    if row.get("rejects") is None:
        return "not searched further"
    return f"session {row['rejects']} has to wait: it ends out of memory"


def _how_known(statement: CapacityStatement) -> str:
    if not statement.supported:
        return "Nothing was asked."
    return f"Both sides of every border were run ({text(str(statement.supported[0]['source']))}); what lies below follows from it."
