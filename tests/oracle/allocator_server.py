"""Runs programs of allocator calls in real torch on the virtual GPU, each in a process forked before CUDA was touched.

One JSON line in: ``{"conf": ..., "program": [[word, ...], ...]}``. One JSON line out: what each call answered, the statistics, the
segments and the trace at the end. Runs alone: it must not import vramdoc, so that torch is all that is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from typing import Any

import torch

torch.backends.cudnn.enabled = False


def new_stream() -> int:
    handle = ctypes.c_void_p()
    assert ctypes.CDLL(None).cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
    assert handle.value
    return handle.value


class Program:
    def __init__(self) -> None:
        self.streams = [0, *(new_stream() for _ in range(3))]
        self.tensors: dict[str, Any] = {}
        self.pools: dict[str, Any] = {}
        self.scopes: dict[str, contextlib.ExitStack] = {}
        self.graphs: dict[str, Any] = {}

    def run(self, program: list[list[Any]]) -> list[Any]:
        return [self.call(word, *arguments) for word, *arguments in program]

    def call(self, word: str, *arguments: Any) -> Any:
        try:
            return getattr(self, f"do_{word}")(*arguments)
        except torch.OutOfMemoryError as error:
            return ["OutOfMemoryError", str(error)]
        except (RuntimeError, ValueError) as error:
            return [type(error).__name__, str(error).split("\n")[0]]

    def stream(self, number: int) -> torch.cuda.Stream:
        """External streams: torch takes their pointer as their id, as it shows in traces."""
        return (
            torch.cuda.ExternalStream(self.streams[number])
            if number
            else torch.cuda.default_stream()
        )

    def do_malloc(self, name: str, size: int, stream: int) -> int:
        with torch.cuda.stream(self.stream(stream)):
            self.tensors[name] = torch.empty(size, dtype=torch.uint8, device="cuda")
        return self.tensors[name].data_ptr()

    def do_free(self, name: str) -> None:
        self.tensors.pop(name, None)

    def do_record_stream(self, name: str, stream: int) -> None:
        if name in self.tensors:
            self.tensors[name].record_stream(self.stream(stream))

    def do_empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def do_fraction(self, fraction: float) -> None:
        torch.cuda.set_per_process_memory_fraction(fraction)

    def do_settings(self, text: str) -> None:
        torch._C._accelerator_setAllocatorSettings(text)

    def do_reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def do_pool(self, name: str, options: dict[str, bool]) -> list[int]:
        self.pools[name] = torch.cuda.MemPool(**options)
        return list(self.pools[name].id)

    def do_enter(self, name: str) -> None:
        stack = contextlib.ExitStack()
        stack.enter_context(torch.cuda.use_mem_pool(self.pools[name]))
        self.scopes[name] = stack

    def do_leave(self, name: str) -> None:
        self.scopes.pop(name).close()

    def do_drop(self, name: str) -> None:
        del self.pools[name]

    def do_begin_capture(self, name: str, stream: int) -> list[int]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.set_stream(self.stream(stream))
        graph.capture_begin()
        self.graphs[name] = graph
        return list(graph.pool())

    def do_end_capture(self, name: str) -> None:
        self.graphs[name].capture_end()
        torch.cuda.set_stream(torch.cuda.default_stream())

    def do_drop_graph(self, name: str) -> None:
        del self.graphs[name]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = request["conf"]
    torch.cuda.init()  # before it, empty_cache and the like do nothing
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
    program = Program()
    answers = program.run(request["program"])
    snapshot = torch.cuda.memory._snapshot()
    return {
        "answers": answers,
        "streams": program.streams,
        "stats": torch.cuda.memory_stats(),
        "segments": snapshot["segments"],
        "trace": snapshot["device_traces"][0],
        "free": torch.cuda.mem_get_info()[0],
    }


def main() -> None:
    # Programs print nothing; warnings of the C++ side go to stderr.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                reply = answer(json.loads(line))
            except BaseException as error:  # noqa: BLE001 - the parent reports it
                reply = {"broken": f"{type(error).__name__}: {error}"}
            with os.fdopen(write, "w") as pipe:
                json.dump(reply, pipe)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        out.write((text or '{"broken": "the process died"}') + "\n")
        out.flush()


if __name__ == "__main__":
    main()
