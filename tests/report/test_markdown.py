"""The ticket report in the renderers that GitHub and GitLab use: the intended structure, and nothing that foreign text made.

cmark-gfm is GitHub's; its tickets break lines where the text does. Comrak is what GitLab's own renderer is built on, with all
that it adds switched on here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from html.parser import HTMLParser

import cmarkgfm
import comrak
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.report.samples import HOSTILE, PIPELINE, SAMPLES
from vramdoc.capacity.statement import CapacityStatement
from vramdoc.evidence.diff import Change, Diff, Difference
from vramdoc.facts import Source
from vramdoc.printable import one_line
from vramdoc.report.comparison import Comparison, ConfigRow, render_comparison_markdown
from vramdoc.report.difference import render_difference_markdown
from vramdoc.report.privacy import redact
from vramdoc.report.statement import render_statement_markdown
from vramdoc.report.to_markdown import LIMIT, render_markdown, text

every_sample = pytest.mark.parametrize("name", SAMPLES)


def github(markdown: str) -> str:
    """As an issue or a comment."""
    options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_HARDBREAKS
    return str(cmarkgfm.github_flavored_markdown_to_html(markdown, options=options))


def gitlab(markdown: str) -> str:
    """With GitLab's extensions of the syntax."""
    extensions, rendering = comrak.ExtensionOptions(), comrak.RenderOptions()
    for name in (
        "alerts", "autolink", "description_lists", "footnotes", "inline_footnotes", "math_code", "math_dollars",
        "multiline_block_quotes", "shortcodes", "strikethrough", "table", "tasklist", "wikilinks_title_before_pipe",
    ):  # fmt: skip
        setattr(extensions, name, True)
    rendering.unsafe_ = True
    return str(
        comrak.render_markdown(markdown, extension_options=extensions, render_options=rendering)
    )


RENDERERS: dict[str, Callable[[str], str]] = {"GitHub": github, "GitLab": gitlab}
every_renderer = pytest.mark.parametrize("renderer", RENDERERS)
OURS = frozenset(
    [
        "h2",
        "h3",
        "p",
        "ul",
        "li",
        "strong",
        "code",
        "pre",
        "hr",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
    ]
)


class Elements(HTMLParser):
    """Every element in order with its attributes and the depth it stands in."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], int]] = []
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), len(self.open)))
        if tag not in {"hr", "br", "img", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in {"hr", "br", "img", "input"}:
            return
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)


def elements(renderer: str, name: str) -> Elements:
    """A sample's report, rendered and taken apart; every element is closed where it was opened."""
    parsed = Elements(RENDERERS[renderer](render_markdown(redact(SAMPLES[name]()))))
    assert parsed.open == []
    return parsed


@every_renderer
@every_sample
def test_foreign_text_makes_no_element_no_link_and_no_break(name: str, renderer: str) -> None:
    parsed = elements(renderer, name)
    assert {tag for tag, _, _ in parsed.found} <= OURS
    allowed = {"class", "lang", "data-meta", "align"}
    assert {key for _, attributes, _ in parsed.found for key in attributes} <= allowed
    shown = "".join(t for tag, texts in parsed.text.items() if tag != "code" for t in texts)
    assert not re.search(r"@\w|\w+://|^/\w", shown, re.MULTILINE)


@every_renderer
def test_foreign_text_in_tables_and_statements_makes_no_element(renderer: str) -> None:
    row = ConfigRow(
        config=HOSTILE, reserved_peak=1, active_peak=1, oom=False, device_alloc=1, device_free=1, source=Source.REPLAYED,
        note=HOSTILE, is_winner=True,
    )  # fmt: skip
    level = Change(name=HOSTILE, before=1, after=2)
    circumstance = Difference(name=HOSTILE, before=HOSTILE, after=HOSTILE)
    differs = Diff(
        before=HOSTILE, after=HOSTILE, circumstances=(circumstance,), levels=(level,), sites=(level,), phases=(level,),
        segments=(level,), missing=(HOSTILE,),
    )  # fmt: skip
    statement = CapacityStatement(**{
        item.name: HOSTILE if item.type == "str" else {HOSTILE: HOSTILE} if item.name == "versions" else {}
        if item.name == "ms_per_token" else () if "tuple" in str(item.type) else 1
        for item in fields(CapacityStatement)
    })  # fmt: skip
    for markdown in (
        render_comparison_markdown(Comparison(rows=(row,), target_name=HOSTILE, sentence=HOSTILE, workload=HOSTILE, notes=(HOSTILE,))),
        render_difference_markdown(differs),
        render_statement_markdown(statement),
    ):  # fmt: skip
        parsed = Elements(RENDERERS[renderer](markdown))
        assert {tag for tag, _, _ in parsed.found} <= OURS


@every_renderer
@pytest.mark.parametrize("name", PIPELINE)
def test_the_report_has_the_intended_structure(name: str, renderer: str) -> None:
    parsed = elements(renderer, name)
    tags = [tag for tag, _, depth in parsed.found if depth == 0]
    assert tags[:2] == ["h2", "p"]
    assert tags.count("h2") == 1
    assert set(tags) <= {"h2", "h3", "p", "ul", "pre", "table", "details"}
    titles = parsed.text["h3"]
    order = ["What to do", "Evidence", "Ruled out and open", "Memory map", "Where and what"]
    assert titles == [title for title in order if title in titles]
    assert parsed.text["summary"]
    folded = [i for i, (tag, _, _) in enumerate(parsed.found) if tag == "details"]
    assert all(parsed.found[i + 1][0] == "summary" for i in folded)


@every_renderer
@pytest.mark.parametrize("name", PIPELINE)
def test_every_row_has_its_tables_cells(name: str, renderer: str) -> None:
    width = count = 0
    for tag, _, _ in elements(renderer, name).found:
        if tag == "tr":
            assert count == width
            count = 0
        elif tag == "table":
            width = count = 0
        elif tag == "th":
            width += 1
            count += 1
        elif tag == "td":
            count += 1


@pytest.mark.parametrize("name", PIPELINE)
def test_it_reads_as_a_plain_text_mail(name: str) -> None:
    """Without a renderer: what to do and why stand in lines of prose, code and tables; only the folds show as two tags."""
    lines = render_markdown(redact(SAMPLES[name]())).splitlines()
    tags = {line for line in lines if line.startswith("<")}
    assert {tag for tag in tags if not tag.startswith("<summary>")} <= {"<details>", "</details>"}
    first_fold = lines.index("<details>")
    code = False
    for line in lines[:first_fold]:
        code ^= line.startswith("```")
        if code or line.startswith("```"):
            continue
        assert line == "" or line[0] in "#|-*`" or line[0].isalnum(), line
        assert "&" not in line
        assert not line.startswith("|") or len(line) <= 140, line
    blocks = "\n".join(lines[:first_fold]).split("```")[1::2]
    assert all(len(line) <= 140 for block in blocks for line in block.splitlines())


@every_sample
def test_markdown_stays_under_the_limit_and_says_what_was_cut(name: str) -> None:
    text = render_markdown(SAMPLES[name]())
    assert len(text) < LIMIT
    if name == "huge":
        assert "Cut to stay under" in text


@pytest.mark.parametrize(
    "sentence",
    [
        "- a",
        "1. a",
        "2) a",
        "+ a",
        "--- a",
        "=== a",
        "# a",
        "> a",
        "* a",
        "a  \n\n# b",
        "| a |",
        "\ta",
        "    a",
    ],
)
def test_a_sentence_stays_a_sentence(sentence: str) -> None:
    tokens = [
        token.type for token in MarkdownIt("commonmark").enable("table").parse(text(sentence))
    ]
    assert tokens == ["paragraph_open", "inline", "paragraph_close"]


@given(st.text(max_size=80))
def test_any_sentence_shows_its_own_words_and_nothing_else(sentence: str) -> None:
    inline = MarkdownIt("commonmark").parseInline(text(sentence))[0].children or []
    assert {token.type for token in inline} <= {"text", "code_inline"}
    shown = "".join(token.content for token in inline)
    assert shown.split() == one_line(sentence).split()
