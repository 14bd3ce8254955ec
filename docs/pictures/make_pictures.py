"""Make the pictures of this folder again: the terminal, the figures and the page, from a program that runs out of memory here.

    python docs/pictures/make_pictures.py

It records ``examples/fragmentation.py`` on a virtual GPU of 2 GiB and needs torch, selenium, Chromium and its driver.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "fragmentation.py"
FIGURES = ("memory-over-time", "segment-map")
WIDTH, PAGE = 92, (1180, 1500)


def run(*arguments: str, folder: Path, colour: bool = False) -> str:
    """Run vramdoc and return what it prints; findings are what we are here for."""
    environment = {"FORCE_COLOR": "1"} if colour else {"NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "vramdoc", *arguments], cwd=folder, check=False, stdout=subprocess.PIPE,
        text=True, encoding="utf-8", env={**inherited(), **environment, "COLUMNS": str(WIDTH)},
    )  # fmt: skip
    return done.stdout


def inherited() -> dict[str, str]:
    """What a child needs of our environment: where programs are, and nothing that colours or names a terminal."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    }


def terminal_picture(text: str, command: str) -> str:
    """The terminal as SVG, without the web fonts that rich would load."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    console.print(Text(f"$ {command}", "bold"))
    console.print(Text.from_ansi(text.rstrip()))
    svg = console.export_svg(title="vramdoc", unique_id="vramdoc")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def page_pictures(page: Path) -> None:
    """The interactive page, light and dark, as a person sees it in Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--hide-scrollbars",
        "--window-size={},{}".format(*PAGE),
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        for theme in ("light", "dark"):
            media = [{"name": "prefers-color-scheme", "value": theme}]
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
            driver.get(page.as_uri())
            driver.implicitly_wait(10)
            driver.find_element("css selector", "html[data-ready]")
            driver.save_screenshot(str(HERE / f"page-{theme}.png"))
    finally:
        driver.quit()


def main() -> None:
    """Record, diagnose, and write every picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(EXAMPLE, folder)
        command = (
            "diagnose",
            "--gpu",
            "2GiB",
            "--html",
            "page.html",
            "--plot",
            "figures",
            "--",
            "python",
            EXAMPLE.name,
        )
        text = run(*command, folder=folder, colour=True)
        shown = f"vramdoc diagnose --gpu 2GiB -- python {EXAMPLE.name}"
        (HERE / "terminal.svg").write_text(
            terminal_picture(text, shown), encoding="utf-8", newline="\n"
        )
        for figure in FIGURES:
            for theme in ("", "-dark"):
                shutil.copy(folder / "figures" / f"{figure}{theme}.svg", HERE)
        page_pictures(folder / "page.html")


if __name__ == "__main__":
    main()
