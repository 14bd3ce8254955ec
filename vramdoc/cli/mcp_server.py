"""``vramdoc mcp``: the same functions as tools for agents, over the Model Context Protocol (extra ``mcp``, the official SDK).

Answers are the commands' own JSON, with nothing private in them. Nothing from a target is executed, and no command can be
given: an agent may look at files, and run models of ours, but not start programs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vramdoc.cli import publish
from vramdoc.errors import MissingDependency, VramdocError


def mcp() -> None:
    """Serve diagnose, compare, explain and capacity as tools for agents (MCP over stdio)."""
    build_server().run()


def build_server() -> Any:
    """The server with its tools.

    Raises:
        MissingDependency: the SDK is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError as error:
        raise MissingDependency(
            "the MCP server needs the official SDK", "pip install 'vramdoc[mcp]'"
        ) from error
    server = MCPServer("vramdoc")
    for tool in (diagnose, compare_alloc_configs, explain, capacity):
        server.tool()(tool)
    return server


def diagnose(target: str, gpu: str | None = None, alloc_conf: str = "") -> dict[str, Any]:
    """Why this ran, or would run, out of GPU memory, and which change fixes it.

    Args:
        target: path of a model file or folder, an allocator snapshot, a recording folder or a crash text.
        gpu: rtx4090, 24GiB (virtual) or cuda:0 (real); for model files only.
        alloc_conf: the PYTORCH_CUDA_ALLOC_CONF string to run a model under.
    """
    from vramdoc.examine.pipeline import examine
    from vramdoc.examine.request import DiagnoseRequest
    from vramdoc.examine.target import recognise
    from vramdoc.report.to_json import render_json

    def answer() -> str:
        found = recognise(_file(target))
        report = examine(DiagnoseRequest(target=found, gpu=gpu, alloc_conf=alloc_conf))
        return render_json(publish.cleaned(report))

    return _answer(answer)


def compare_alloc_configs(target: str, alloc_confs: list[str] | None = None) -> dict[str, Any]:
    """Replay a recording or snapshot under many PYTORCH_CUDA_ALLOC_CONF settings and rank them by peak reserved memory.

    Args:
        target: path of a recording folder or an allocator snapshot with a trace.
        alloc_confs: config strings to add to the default set.
    """
    from vramdoc.examine.compare import CompareRequest, compare_configs
    from vramdoc.examine.target import recognise
    from vramdoc.report.comparison import render_comparison_json

    def answer() -> str:
        found = recognise(_file(target))
        table = compare_configs(CompareRequest(target=found, alloc_confs=tuple(alloc_confs or ())))
        return render_comparison_json(publish.cleaned(table))

    return _answer(answer)


def explain(
    subject: str, torch_release: str | None = None, platform: str | None = None
) -> dict[str, Any]:
    """What a finding, prescription or lint rule means, or what each option of an allocator config string does.

    Args:
        subject: an id such as true-capacity, RX-EXPANDABLE, VD001, or a config string.
        torch_release: for a config string, e.g. "2.9".
        platform: linux, windows, wsl, rocm or macos.
    """
    from vramdoc.examine.explanations import explain_subject

    return _answer(
        lambda: json.dumps(
            explain_subject(subject, torch_release=torch_release, platform=platform).to_json()
        )
    )


def capacity(
    model: str, gpu: str, contexts: list[int] | None = None, sessions: list[int] | None = None
) -> dict[str, Any]:
    """Which contexts times how many concurrent sessions fit on a GPU, verified by running the border.

    Args:
        model: path of a model file or folder.
        gpu: rtx4090, 24GiB (virtual) or cuda:0 (real).
        contexts: tokens of each conversation.
        sessions: conversations open at once.
    """
    from vramdoc.examine.planning import Question, plan
    from vramdoc.report.capacity import render_capacity_json

    def answer() -> str:
        found = plan(
            Question(
                model=Path(_file(model)),
                gpu=gpu,
                fields={
                    "contexts": tuple(contexts or (2048, 8192)),
                    "sessions": tuple(sessions or (1, 4)),
                },
                recordings=Path(".vramdoc"),
                progress=lambda _sentence: None,
            )
        )
        clean = publish.cleaned(found)
        return render_capacity_json(clean.plan, clean.statement.to_json())

    return _answer(answer)


def _file(text: str) -> str:
    """A path; standard input belongs to the protocol here."""
    if text == "-":
        raise VramdocError("a tool cannot read standard input", "give a file")
    return text


def _answer(make: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(make())
    except VramdocError as error:
        return {"error": {"message": error.message, "hint": error.hint}}
    return answer
