"""``vramdoc compare-alloc-configs [TARGET]``: the same work under many PYTORCH_CUDA_ALLOC_CONF settings, ranked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from vramdoc.cli import options

if TYPE_CHECKING:
    from vramdoc.examine.sweep import SweepRequest

PICTURES = (".png", ".svg")


def compare_alloc_configs(
    target: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="[TARGET]",
            help="A recording, a snapshot, several snapshots (one a rank), a model, or a command after --. Default: the newest recording.",
        ),
    ] = None,
    alloc_conf: Annotated[
        Optional[list[str]],
        typer.Option("--alloc-conf", metavar="CONF", help="A config to add; any number of times."),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Search the numeric options; keep the Pareto front.")
    ] = False,
    gpu: options.Gpu = None,
    confirm: Annotated[
        int, typer.Option("--confirm", min=0, metavar="N", help="Rerun the best N for real.")
    ] = 0,
    fraction: Annotated[
        Optional[float], typer.Option("--fraction", help="What if: a memory fraction, e.g. 0.9.")
    ] = None,
    empty_cache_every: Annotated[
        Optional[int],
        typer.Option(
            "--empty-cache-every", min=1, help="What if: empty_cache before every N-th phase."
        ),
    ] = None,
    dask: Annotated[
        Optional[str],
        typer.Option(
            "--dask",
            metavar="ADDRESS",
            help="Several snapshots: the Dask scheduler whose workers replay them.",
        ),
    ] = None,
    resume: Annotated[
        Optional[Path],
        typer.Option(
            "--resume",
            metavar="DIR",
            help="Several snapshots: keep what is finished there, and go on from it. Default: beside the recordings.",
        ),
    ] = None,
    workload: options.Workload = None,
    context: options.Context = None,
    sessions: options.Sessions = None,
    new_tokens: options.NewTokens = None,
    batch: options.Batch = None,
    cache: options.Cache = None,
    json_output: options.Json = False,
    output_format: Annotated[
        str, typer.Option("--format", help="terminal, json or markdown, on stdout.")
    ] = "terminal",
    plot: Annotated[
        Optional[Path],
        typer.Option("--plot", metavar="FILE", help="Draw the comparison (.png or .svg)."),
    ] = None,
    force: options.Force = False,
    include_private: options.IncludePrivate = False,
    recordings: options.Recordings = Path(".vramdoc"),
) -> None:
    """Put the same work through many allocator configs and rank them by peak reserved memory."""
    from vramdoc.cli import publish, terminal
    from vramdoc.cli.diagnose import reproducing_command
    from vramdoc.cli.values import choice, workload_fields
    from vramdoc.errors import UsageError
    from vramdoc.examine.compare import CompareRequest, compare_configs
    from vramdoc.examine.sweep import SweepRequest, one_target_only
    from vramdoc.examine.target import recognise_all
    from vramdoc.report import comparison as pages

    wanted = "json" if json_output else choice("--format", output_format, pages.FORMATS)
    if plot is not None:
        _check_picture(plot, force=force)
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(f"--fraction {fraction} is not between 0 and 1")
    words = tuple(target or ())
    found = recognise_all(words) if words else None
    if found is not None and found.kind == "snapshots":
        one_target_only(
            {
                "--search": search,
                "--confirm": confirm,
                "--fraction": fraction,
                "--empty-cache-every": empty_cache_every,
                "--plot": plot,
            }
        )
        request = SweepRequest(
            paths=found.paths, alloc_confs=tuple(alloc_conf or ()), gpu=gpu, dask=dask, resume=resume, recordings=recordings,
            command=reproducing_command(words, found.name),
        )  # fmt: skip
        _sweep(request, wanted, include_private=include_private)
        return
    if dask is not None or resume is not None:
        raise UsageError("--dask and --resume are for several snapshots", "give one a rank")
    fields = workload_fields(
        name=workload, context=context, sessions=sessions, new_tokens=new_tokens, batch=batch,
        cache=cache, dtype=None, seed=None,
    )  # fmt: skip
    with terminal.progress() as show_progress:
        table = compare_configs(
            CompareRequest(
                target=found,
                argv=words if found is not None and found.kind == "command" else (),
                alloc_confs=tuple(alloc_conf or ()),
                search=search,
                gpu=gpu,
                workload=fields,
                fraction=fraction,
                empty_cache_every=empty_cache_every,
                confirm=confirm,
                recordings=recordings,
                command=reproducing_command(words, found.name if found else ""),
                progress=show_progress,
            )
        )
    renderers = (
        pages.render_comparison_json,
        pages.render_comparison_markdown,
        pages.render_comparison,
    )
    table = publish.cleaned(table, include_private=include_private)
    _show(table, wanted, renderers)
    if plot is not None:
        from vramdoc.report.plots import plot_comparison

        pictures = plot_comparison(table)
        chosen = next(name for name in pictures if name.endswith(plot.suffix.lower()))
        terminal.write_file(plot, pictures[chosen], force=force)


def _sweep(request: SweepRequest, wanted: str, *, include_private: bool) -> None:
    """Several snapshots: one table over all of them."""
    from dataclasses import replace

    from vramdoc.cli import publish, terminal
    from vramdoc.examine.sweep import sweep_configs
    from vramdoc.report import sweep as pages

    with terminal.progress() as show_progress:
        table = sweep_configs(replace(request, progress=show_progress))
    renderers = (pages.render_sweep_json, pages.render_sweep_markdown, pages.render_sweep)
    _show(publish.cleaned(table, include_private=include_private), wanted, renderers)


def _show(
    table: Any,
    wanted: str,
    renderers: tuple[Callable[..., str], Callable[..., str], Callable[..., str]],
) -> None:
    """Write a table to stdout; ``renderers`` are those of JSON, Markdown and the terminal."""
    from vramdoc.cli import terminal

    as_json, as_markdown, for_terminal = renderers
    if wanted == "json":
        text = as_json(table)
    elif wanted == "markdown":
        text = as_markdown(table)
    else:
        screen = terminal.terminal_of(sys.stdout)
        text = for_terminal(
            table,
            **screen.shape,
        )
    terminal.show(text)


def _check_picture(plot: Path, *, force: bool) -> None:
    """Refuse, before any work is done, a picture that could not be written after it."""
    from vramdoc.errors import UsageError

    if plot.suffix.lower() not in PICTURES:
        raise UsageError(f"{plot} is neither .png nor .svg")
    if plot.exists() and not force:
        raise UsageError(f"{plot} exists", "use --force to overwrite it")
