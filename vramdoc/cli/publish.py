"""Where a report goes: stdout in one format, and the files that were asked for. It renders nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vramdoc.cli import terminal
from vramdoc.errors import UsageError

if TYPE_CHECKING:
    from vramdoc.report.contents import Report

STDOUT_FORMATS = ("terminal", "json", "markdown", "github")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Everything the person wants to have."""

    format: str
    report_file: Path | None = None
    html_file: Path | None = None
    plot_folder: Path | None = None
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


def chosen_format(name: str | None, *, json_output: bool) -> str:
    """Merge ``--json`` and ``--format``.

    Raises:
        UsageError: an unknown format.
    """
    if json_output:
        return "json"
    if name is None:
        return "terminal"
    if name not in STDOUT_FORMATS:
        raise UsageError(
            f"--format {name!r} is not known", f"choose from {', '.join(STDOUT_FORMATS)}"
        )
    return name


def publish(report: Report, outputs: Outputs) -> None:
    """Write the report everywhere it was asked for."""
    from vramdoc.report.privacy import redact

    clean = redact(report, include_private=outputs.include_private)
    terminal.show(_stdout(clean, outputs))
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

        outputs.plot_folder.mkdir(parents=True, exist_ok=True)
        for name, content in plot_report(clean).items():
            terminal.write_file(outputs.plot_folder / name, content, force=outputs.force)
        terminal.say(f"pictures written to {outputs.plot_folder}")


def _stdout(report: Report, outputs: Outputs) -> str:
    if outputs.format == "json":
        from vramdoc.report.to_json import render_json

        return render_json(report)
    if outputs.format == "markdown":
        from vramdoc.report.to_markdown import render_markdown

        return render_markdown(report)
    if outputs.format == "github":
        from vramdoc.report.to_github import render_github

        return render_github(report)
    import sys

    from vramdoc.report.to_terminal import render_terminal

    screen = terminal.terminal_of(sys.stdout)
    return render_terminal(
        report,
        width=screen.width,
        colour=screen.colour,
        ascii_only=screen.ascii_only,
        verbose=outputs.verbose,
        quiet=outputs.quiet,
    )
