"""Where a report goes: stdout in one format, and the files that were asked for. It renders nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vramdoc.cli import terminal
from vramdoc.errors import StorageProblem, UsageError

if TYPE_CHECKING:
    from vramdoc.report.contents import Report

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Everything the person wants to have."""

    format: str
    report_file: Path | None = None
    html_file: Path | None = None
    plot_folder: Path | None = None
    export_folder: Path | None = None
    export_format: str = "csv"
    force: bool = False
    include_private: bool = False
    quiet: bool = False
    verbose: bool = False

    def check(self) -> None:
        """Refuse, before any work is done, what could not be written after it.

        Raises:
            UsageError: a file exists and may not be overwritten, or its folder does not exist.
        """
        for path in (self.report_file, self.html_file):
            if path is None:
                continue
            if path.exists() and not self.force:
                raise UsageError(f"{path} exists", "use --force to overwrite it")
            if not path.parent.is_dir():
                raise UsageError(f"the folder of {path} does not exist", "make it first")
        for folder, always_there in (
            (self.plot_folder, "segment-map.svg"),
            (self.export_folder, f"facts.{self.export_format}"),
        ):
            if folder is not None and (folder / always_there).exists() and not self.force:
                raise UsageError(f"{folder / always_there} exists", "use --force to overwrite it")


def chosen_format(name: str | None, *, json_output: bool) -> str:
    """Merge ``--json`` and ``--format``.

    Raises:
        UsageError: an unknown format.
    """
    if json_output:
        return "json"
    from vramdoc.report.formats import find_format

    return find_format(name or "terminal").name


def cleaned(record: _Record, *, include_private: bool = False) -> _Record:
    """Anything that is to be rendered, without what is private on this machine or on the one that it came from."""
    from vramdoc.report.privacy import redact

    return redact(record, include_private=include_private, names=_names_of_this_machine())


def publish(report: Report, outputs: Outputs) -> None:
    """Write the report everywhere it was asked for."""
    clean = cleaned(report, include_private=outputs.include_private)
    terminal.show(_stdout(clean, outputs))
    if outputs.format == "github":
        _add_job_summary(clean)
    if outputs.report_file is not None:
        from vramdoc.report.to_markdown import render_markdown

        terminal.write_file(outputs.report_file, render_markdown(clean), force=outputs.force)
        terminal.say(f"ticket report written to {outputs.report_file}")
    if outputs.html_file is not None:
        from vramdoc.report.to_html import render_html

        terminal.write_file(outputs.html_file, render_html(clean), force=outputs.force)
        terminal.say(f"interactive report written to {outputs.html_file}")
    if outputs.plot_folder is not None:
        from vramdoc.report.plots import plot_report

        terminal.write_files(outputs.plot_folder, plot_report(clean), force=outputs.force)
        terminal.say(f"pictures written to {outputs.plot_folder}")
    if outputs.export_folder is not None:
        from vramdoc.report.frames import exported

        tables = exported(clean, outputs.export_format)
        terminal.write_files(outputs.export_folder, tables, force=outputs.force)
        terminal.say(f"tables written to {outputs.export_folder}")


def _stdout(report: Report, outputs: Outputs) -> str:
    if outputs.format != "terminal":
        from vramdoc.report.formats import find_format

        return find_format(outputs.format).render(report)
    import sys

    from vramdoc.report.to_terminal import render_terminal

    screen = terminal.terminal_of(sys.stdout)
    return render_terminal(
        report,
        **screen.shape,
        verbose=outputs.verbose,
        quiet=outputs.quiet,
    )


def _names_of_this_machine() -> set[str]:
    """Who and where we are, so that a report can be kept free of it."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name (OSError from Python 3.13 on)
        user = ""
    return {user, socket.gethostname()}


def _add_job_summary(report: Report) -> None:
    """Append the ticket report to the summary of a GitHub Actions job, where one is running.

    Raises:
        StorageProblem: the runner's file cannot be written.
    """
    import os

    from vramdoc.report.to_github import SUMMARY_VARIABLE, render_job_summary

    path = os.environ.get(SUMMARY_VARIABLE)
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(render_job_summary(report))
    except OSError as error:
        raise StorageProblem(
            f"{SUMMARY_VARIABLE} cannot be written: {error.strerror or error}",
            "unset it to go without a summary",
        ) from error
