"""Options that several commands share, spelled and worded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Optional

import typer

from vramdoc.cli.values import CACHES, DTYPES, WORKLOADS

# Typer reads these at run time under Python 3.10, hence Optional[...] instead of `X | None`.


def _one_of(values: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """For a shell's completion: those of ``values`` that begin with what is typed."""
    return lambda incomplete: [value for value in values() if value.startswith(incomplete)]


def _gpus() -> Iterable[str]:
    from vramdoc.virtual_gpu.catalogue import CATALOGUE

    return sorted(CATALOGUE)


Gpu = Annotated[
    Optional[str],
    typer.Option(
        "--gpu",
        metavar="GPU",
        autocompletion=_one_of(_gpus),
        help="rtx4090, 24GiB (virtual), or cuda:0 (real). Default: a real GPU where there is one, else a virtual rtx4090.",
    ),
]
AllocConf = Annotated[
    str,
    typer.Option(
        "--alloc-conf",
        metavar="CONF",
        help="The PYTORCH_CUDA_ALLOC_CONF string to run under, e.g. expandable_segments:True.",
    ),
]
Workload = Annotated[
    Optional[str],
    typer.Option(
        "--workload",
        autocompletion=_one_of(lambda: WORKLOADS),
        help="chat, prefill, fill, load, encode, train or serve.",
    ),
]
Context = Annotated[
    Optional[str], typer.Option("--context", help="Tokens a conversation grows to, e.g. 2048, 8k.")
]
Sessions = Annotated[Optional[int], typer.Option("--sessions", help="Conversations open at once.")]
NewTokens = Annotated[Optional[int], typer.Option("--new-tokens", help="Tokens generated a turn.")]
Batch = Annotated[Optional[int], typer.Option("--batch", help="Sequences a forward pass.")]
Cache = Annotated[
    Optional[str],
    typer.Option(
        "--cache",
        autocompletion=_one_of(lambda: CACHES),
        help="KV cache: dynamic, static, chunked, paged, sliding, int8, int4, fp8 or offloaded.",
    ),
]
Dtype = Annotated[
    Optional[str],
    typer.Option(
        "--dtype",
        autocompletion=_one_of(lambda: DTYPES),
        help="Computation type; default: the checkpoint's.",
    ),
]
Seed = Annotated[Optional[int], typer.Option("--seed", help="Seed of the workload's sizes.")]
ForeignMemory = Annotated[
    str,
    typer.Option(
        "--foreign", metavar="SIZE", help="Virtual GPU: bytes that other processes hold, e.g. 2GiB."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only the verdict.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="All evidence, verdicts and the segment map.")
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.")]
IncludePrivate = Annotated[
    bool,
    typer.Option(
        "--include-private", help="Keep full paths, names and environment values in reports."
    ),
]
ReportFile = Annotated[
    Optional[Path], typer.Option("--report", metavar="FILE.md", help="Write the ticket report.")
]
HtmlFile = Annotated[
    Optional[Path],
    typer.Option("--html", metavar="FILE.html", help="Write the interactive report (one file)."),
]
PlotDir = Annotated[
    Optional[Path], typer.Option("--plot", metavar="DIR", help="Write pictures into this folder.")
]
ExportDir = Annotated[
    Optional[Path],
    typer.Option(
        "--export", metavar="DIR", help="Write the evidence as tables (facts, blocks, events ...)."
    ),
]
ExportFormat = Annotated[
    str, typer.Option("--export-format", help="csv, or parquet (needs pyarrow).")
]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit 0 even with findings.")]
Recordings = Annotated[
    Path,
    typer.Option("--recordings", metavar="DIR", help="Where recordings are kept."),
]
