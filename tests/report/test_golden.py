"""What each format writes for each sample, kept as files. ``UPDATE_GOLDEN=1 pytest tests/report/test_golden.py`` rewrites them.

The page is kept without its scripts and styles, its data as the numbers that its columns hold, a picture as what is drawn in it:
compressed bytes and rendered pixels would change with zlib and matplotlib.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from tests.report.samples import SAMPLES
from vramdoc.report.contents import Report
from vramdoc.report.page_data import page_data
from vramdoc.report.plots.pictures import drawings
from vramdoc.report.plots.style import THEMES
from vramdoc.report.privacy import redact
from vramdoc.report.to_github import render_github
from vramdoc.report.to_html import render_html
from vramdoc.report.to_json import render_json
from vramdoc.report.to_markdown import render_markdown
from vramdoc.report.to_terminal import render_terminal

GOLDEN = Path(__file__).parent / "golden"


def page_without_scripts(report: Report) -> str:
    """The page's own words."""
    html = re.sub(
        r"<(script|style)[^>]*>.*?</\1>", r"<\1></\1>", render_html(report), flags=re.DOTALL
    )
    return re.sub(r"sha256-[\w+/=]+", "sha256-", html)


def page_columns(report: Report) -> str:
    """What the page's scripts read, with every column unpacked."""
    data = page_data(report.case)
    return "" if data is None else "\n".join(_lines("", json.loads(data.json))) + "\n"


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _lines(f"{name}.{key}" if name else key, part)
    elif isinstance(value, str) and value.startswith("eN"):
        yield f"{name}: {unpacked(value)}"
    else:
        yield f"{name}: {json.dumps(value)}"


def unpacked(text: str) -> str:
    """Plain LEB128, written apart from the packer; frames are JSON instead."""
    content = zlib.decompress(base64.b64decode(text))
    if content.startswith(b'["') or content == b"[]":
        return content.decode()
    values, value, shift = [], 0, 0
    for byte in content:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value, shift = 0, 0
    return " ".join(map(str, values))


def drawn(report: Report) -> str:
    """What is in the pictures, in words: titles, labels, and the ends and tops of every curve."""
    return "\n".join(line for drawing in drawings(report) for line in _described(drawing)) + "\n"


def _described(drawing: Any) -> Iterator[str]:
    figure = Figure()
    drawing.draw(figure, THEMES["light"])
    yield f"{drawing.name}, {drawing.height:.2f} inches high"
    for axes in figure.axes:
        yield f"  axes {axes.get_title(loc='center') or axes.get_title(loc='left')!r}"
        yield f"    x {axes.get_xlabel()!r} {_span(axes.get_xlim())}, y {axes.get_ylabel()!r} {_span(axes.get_ylim())}"
        for line in axes.lines:
            x, y = line.get_xdata(), line.get_ydata()
            shown = f"from {y[0]:g} to {y[-1]:g}, at most {max(y):g}" if len(y) else "nothing"
            yield f"    line {line.get_label()!r}: {len(x)} points, {shown}"
        for bars in axes.containers:
            yield f"    bars {[round(bar.get_width()) for bar in bars]}"
        if axes.collections:
            pieces = sum(len(part.get_paths()) for part in axes.collections)
            yield f"    {len(axes.collections)} areas of {pieces} pieces"
        for text in axes.texts:
            yield f"    text {text.get_text()!r}"
    for legend in figure.legends:
        yield f"  legend {[text.get_text() for text in legend.get_texts()]}"


def _span(limits: tuple[float, float]) -> str:
    return f"{limits[0]:.6g} to {limits[1]:.6g}"


FORMS: dict[str, Callable[[Report], str]] = {
    "80.txt": render_terminal,
    "160-verbose.txt": lambda report: render_terminal(report, width=160, verbose=True),
    "ascii.txt": lambda report: render_terminal(report, ascii_only=True),
    "md": render_markdown,
    "json": render_json,
    "github.txt": render_github,
    "html": page_without_scripts,
    "page.txt": page_columns,
    "pictures.txt": drawn,
}


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"huge"}))
@pytest.mark.parametrize("form", FORMS)
def test_output_is_as_kept(name: str, form: str) -> None:
    text = FORMS[form](redact(SAMPLES[name]()))
    path = GOLDEN / f"{name}.{form}"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        if text.strip():
            path.write_text(text, encoding="utf-8", newline="\n")
        else:
            path.unlink(missing_ok=True)  # nothing to draw
    assert text.strip() == "" or text == path.read_bytes().decode("utf-8")


def test_nothing_is_kept_that_no_sample_makes() -> None:
    assert {path.name.partition(".")[0] for path in GOLDEN.iterdir()} == SAMPLES.keys() - {"huge"}
