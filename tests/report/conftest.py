"""A real Chromium for the tests of the interactive page; skipped by name where there is none, except in CI."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


class Page:
    """One loaded page: asks it questions and waits for answers."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        """Load a file and wait until its scripts are done."""
        self.driver.get(path.as_uri())
        self.until(
            "return document.documentElement.dataset.ready || !document.getElementById('recording')"
        )

    def run(self, script: str, *arguments: object) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str) -> Any:
        """What a script returns as soon as it is true."""
        for _ in range(200):
            answer = self.run(script)
            if answer:
                return answer
            time.sleep(0.05)
        raise AssertionError(f"never became true: {script}")

    def element(self, css: str) -> Any:
        """The element of a selector."""
        return self.driver.find_element("css selector", css)

    def keys(self, css: str, *keys: str) -> None:
        """Press keys on an element."""
        self.element(css).send_keys(*keys)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, headless, with its console and network logs kept."""
    if CHROMIUM is None or DRIVER is None:
        if os.environ.get("CI"):
            pytest.fail("chromium and chromedriver must be installed in CI")
        pytest.skip("chromium and chromedriver are not installed (apt-get install chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,1000",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium: Any) -> Page:
    """A page with empty logs."""
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    return Page(chromium)
