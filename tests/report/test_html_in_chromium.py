"""The interactive page in a real Chromium: it loads, zooms, answers clicks and keys, and asks nobody for anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.report.conftest import Page
from tests.report.samples import SAMPLES
from tests.report.traces import stepping_case
from vramdoc.report.contents import Report
from vramdoc.report.to_html import render_html

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

Show = Callable[[Report], None]


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Show:
    """Render a report and load it."""

    def load(report: Report) -> None:
        path = tmp_path / "report.html"
        path.write_text(render_html(report), encoding="utf-8")
        page.open(path)

    return load


def stepping() -> Report:
    """A report over a recording with a failure in it."""
    return replace(SAMPLES["fragmentation"](), case=stepping_case())


def moment(page: Page) -> int:
    """The moment that is shown."""
    return int(page.element("#timeline").get_attribute("data-moment"))


def span(page: Page) -> tuple[int, int]:
    """The events that the timeline shows."""
    host = page.element("#timeline")
    return int(host.get_attribute("data-from")), int(host.get_attribute("data-to"))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_loads_without_an_error_and_without_a_request(
    page: Page, show: Show, name: str
) -> None:
    show(SAMPLES[name]())
    assert [entry for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    requested = {
        message["params"]["request"]["url"].partition(":")[0]
        for entry in page.driver.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"]
        == "Network.requestWillBeSent"
    }
    assert requested <= {"file", "data"}
    assert page.run("return document.querySelectorAll('body script:not([src])').length") <= 2
    assert page.run("return document.querySelectorAll('img, iframe, b > b').length") == 0


def test_the_policy_stops_a_script_that_got_in(page: Page, show: Show) -> None:
    show(stepping())
    page.run(
        "const s = document.createElement('script'); s.textContent = 'window.got_in = 1'; document.body.append(s)"
    )
    page.run("fetch('http://127.0.0.1:9/').catch(() => { window.refused = 1 })")
    assert page.until("return window.refused") == 1
    assert page.run("return window.got_in") is None


def test_it_opens_at_the_failure_and_says_the_levels(page: Page, show: Show) -> None:
    show(stepping())
    failure = json.loads(page.element("#recording").get_attribute("textContent"))["moments"][
        "failure"
    ]
    assert moment(page) == failure
    assert "reserved" in page.element("#moment").text
    assert int(page.element("#map").get_attribute("data-blocks")) > 3


def test_dragging_and_the_wheel_zoom_and_the_button_goes_back(page: Page, show: Show) -> None:
    show(stepping())
    whole = span(page)
    over = page.element("#timeline .u-over")
    ActionChains(page.driver).move_to_element_with_offset(
        over, -200, 0
    ).click_and_hold().move_by_offset(150, 0).release().perform()
    zoomed = span(page)
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    page.run(
        "document.querySelector('#timeline .u-over').dispatchEvent(new WheelEvent('wheel', {deltaY: -1}))"
    )
    closer = span(page)
    assert closer[1] - closer[0] < zoomed[1] - zoomed[0]
    page.element("#reset").click()
    assert span(page) == whole


def test_a_click_on_the_timeline_shows_that_moments_layout(page: Page, show: Show) -> None:
    show(stepping())
    over = page.element("#timeline .u-over")
    ActionChains(page.driver).move_to_element_with_offset(
        over, -over.size["width"] // 2 + 3, 0
    ).click().perform()
    early, blocks = moment(page), int(page.element("#map").get_attribute("data-blocks"))
    assert early < 40
    ActionChains(page.driver).move_to_element_with_offset(over, 100, 0).click().perform()
    assert moment(page) > early
    assert int(page.element("#map").get_attribute("data-blocks")) > blocks


def test_a_click_on_a_block_shows_its_life_and_stack(page: Page, show: Show) -> None:
    show(stepping())
    canvas = page.element("#map")
    page.run("arguments[0].scrollIntoView()", canvas)
    ActionChains(page.driver).move_to_element_with_offset(
        canvas, -canvas.size["width"] // 2 + 5, -canvas.size["height"] // 2 + 25
    ).click().perform()
    text = page.element("#block").text
    assert "allocated" in text
    assert "train.py" in text
    assert "event" in text


def test_keys_move_zoom_and_choose(page: Page, show: Show) -> None:
    show(stepping())
    start, whole = moment(page), span(page)
    page.keys("#timeline", Keys.ARROW_LEFT)
    assert moment(page) < start
    page.keys("#timeline", "f")
    assert moment(page) == start
    page.keys("#timeline", "+")
    assert span(page) != whole
    page.keys("#timeline", "0")
    assert span(page) == whole
    page.keys("#timeline", Keys.HOME)
    assert moment(page) == -1
    page.keys("#timeline", Keys.END)
    page.keys("#map", Keys.ARROW_RIGHT)
    page.keys("#map", Keys.ARROW_RIGHT)
    assert "address" in page.element("#block").text


def test_curves_run_across_the_whole_chart_wherever_one_looks(page: Page, show: Show) -> None:
    """Zoomed in, then sent to another moment, the rows between two events are drawn from edge to edge."""
    drawn = """
        const c = document.querySelector('#timeline canvas'), x = c.getContext('2d');
        const ink = getComputedStyle(document.documentElement).getPropertyValue('--reserved').trim();
        const [r, g, b] = [1, 3, 5].map((i) => parseInt(ink.slice(i, i + 2), 16));
        const left = Math.ceil(84 * devicePixelRatio) + 8, right = c.width - 40;
        let inked = 0;
        for (let column = left; column < right; column++) {
          const pixels = x.getImageData(column, 0, 1, c.height - 60 * devicePixelRatio).data;
          for (let i = 0; i < pixels.length; i += 4)
            if (Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b) < 60 && pixels[i + 3] > 200) { inked++; break; }
        }
        return inked / (right - left)"""
    show(stepping())
    page.keys("#timeline", Keys.END)
    for _ in range(6):
        page.keys("#timeline", "+")
    page.keys("#timeline", "p")
    for _ in range(4):
        page.keys("#timeline", Keys.ARROW_LEFT)
    page.until(f"return (() => {{{drawn}}})() > 0.9")


def test_everything_that_can_be_used_can_be_reached_by_tab(page: Page, show: Show) -> None:
    show(stepping())
    reached = set()
    page.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    body = page.element("body")
    for _ in range(40):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        reached.add(page.run("return document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "timeline", "map", "reset", "SUMMARY", "A"} <= reached
    assert body is not None


def test_a_call_site_is_marked_in_the_map(page: Page, show: Show) -> None:
    show(stepping())
    pixels = "const c = document.getElementById('map'); return Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).join()"
    before = page.run(pixels)
    button = page.element("#sites button")
    page.run("arguments[0].click()", button)
    assert button.get_attribute("aria-pressed") == "true"
    assert page.run(pixels) != before


def test_dark_mode_follows_the_system_and_the_button(page: Page, show: Show) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    try:
        page.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
        )
        show(stepping())
        dark = page.run(ground)
        page.element("#theme").click()
        assert page.run(ground) != dark
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_layouts_bytes_are_the_levels_bytes_at_every_moment(page: Page, show: Show) -> None:
    """What the page draws adds up to what it says."""
    show(stepping())
    assert page.run("""
        const data = JSON.parse(document.getElementById('recording').textContent);
        return readRecording(data).then((recording) => {
          const wrong = [];
          for (let event = -1; event < recording.events; event++) {
            const levels = levelsAt(recording, event), groups = layoutAt(recording, event);
            const blocks = groups.flatMap((g) => g.segments.flatMap((s) => s.blocks));
            const sum = (list) => list.reduce((total, b) => total + b.size, 0);
            const used = sum(blocks.filter((b) => b.state === 'used'));
            const pending = sum(blocks.filter((b) => b.state === 'pending'));
            if (sum(blocks) !== levels.reserved || used !== levels.allocated || used + pending !== levels.active)
              wrong.push([event, levels, sum(blocks), used, pending]);
          }
          return wrong;
        })""") == []  # fmt: skip


def test_evidence_and_verdict_are_linked_both_ways(page: Page, show: Show) -> None:
    show(stepping())
    link = page.element("#verdict-0 a")
    target = link.get_attribute("href").partition("#")[2]
    assert page.element(f"[id='{target}'] a").get_attribute("href").endswith("#verdict-0")


def test_without_scripts_the_verdict_and_the_action_can_still_be_read(
    page: Page, show: Show
) -> None:
    try:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        html = render_html(stepping())
        page.driver.get(
            "data:text/html;charset=utf-8,"
            + html.partition("<script")[0].replace("#", "%23")[:200_000]
        )
        text = page.element("body").text
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "expandable_segments:True" in text
    assert "480.00 MiB" in text
