"""The capacity statement as the Markdown block that a team publishes. It knows nothing that the statement does not say."""

from __future__ import annotations

from vramdoc.capacity.statement import CapacityStatement, Supported
from vramdoc.units import format_bytes


def statement_markdown(statement: CapacityStatement) -> str:
    """The block that a team publishes."""
    rows = [
        f"| {row['context']:,} | {row['sessions']} | {format_bytes(row['headroom_bytes'])} | {_condition(row)} |"
        for row in statement.supported
    ]
    versions = ", ".join(
        f"{name} {version}" for name, version in sorted(statement.versions.items())
    )
    lines = [
        f"### Capacity of {statement.model}",
        "",
        f"- **Model** revision `{statement.revision}`, {statement.dtype}, weights {format_bytes(statement.weight_bytes)}",
        f"- **KV cache** {format_bytes(statement.kv_bytes_per_token)} a token, strategy `{statement.cache}`",
        f"- **Device** {statement.device}, {format_bytes(statement.device_bytes)} ({statement.device_kind})",
        f"- **Versions** {versions}",
        f"- **Allocator** `{statement.alloc_conf or 'default'}`",
        f"- **Workload** `{statement.workload}`",
        "",
        "| Context (tokens) | Sessions | Left at the peak | Beyond |",
        "|--:|--:|--:|:--|",
        *rows,
        "",
        _how_known(statement),
    ]
    lines += [
        f"{item['sessions']} sessions of {item['context']:,} tokens fit only with `{item['alloc_conf'] or item['cache']}`."
        for item in statement.only_with
    ]
    lines += [
        f"A token takes {time} ms at {context} tokens, one session at a time."
        for context, time in sorted(statement.ms_per_token.items(), key=lambda item: int(item[0]))
    ]
    if statement.device_kind != "real":
        lines.append("Memory only: a virtual device tells no times.")
    return "\n".join(lines) + "\n"


def _condition(row: Supported) -> str:
    if row.get("rejects") is None:
        return "not searched further"
    return f"session {row['rejects']} has to wait: it ends out of memory"


def _how_known(statement: CapacityStatement) -> str:
    if not statement.supported:
        return "Nothing was asked."
    return f"Both sides of every border were run ({statement.supported[0]['source']}); what lies below follows from it."
