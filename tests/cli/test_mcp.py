"""The MCP server answers a real client over stdio, with the commands' own JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest

mcp = pytest.importorskip("mcp", reason="the mcp extra is not installed")


def ask(tool: str, arguments: dict) -> tuple[set[str], dict]:
    """Start the server as a child, list its tools, call one."""

    async def talk() -> tuple[set[str], dict]:
        from mcp.client.stdio import stdio_client

        parameters = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "vramdoc", "mcp"]
        )
        async with stdio_client(parameters) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            tools = {tool.name for tool in (await session.list_tools()).tools}
            result = await session.call_tool(tool, arguments)
            return tools, json.loads(result.content[0].text)

    return anyio.run(talk)


def test_a_crash_text_is_diagnosed_by_a_tool_call(tmp_path: Path) -> None:
    log = tmp_path / "crash.log"
    log.write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 23.52 GiB of "
        "which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated "
        "memory 22.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
    )
    tools, answer = ask("diagnose", {"target": str(log)})
    assert tools == {"diagnose", "compare_alloc_configs", "explain", "capacity"}
    assert answer["primary"] == "true-capacity"


def test_an_error_is_an_answer_with_a_hint(tmp_path: Path) -> None:
    _, answer = ask("diagnose", {"target": str(tmp_path / "nothing.log")})
    assert "does not exist" in answer["error"]["message"]
