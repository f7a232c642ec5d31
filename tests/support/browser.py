"""A page in Chromium, with everything that it asked for and complained about."""

import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Seen:
    """A page that is open while the context lasts."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1440, scheme: str = "light") -> None:
        self.requests: list[str] = []
        self.messages: list[str] = []
        self._context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self._path = path
        self.page = self._context.new_page()

    def __enter__(self) -> "Seen":
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.goto(self._path.as_uri())
        self.page.wait_for_selector("html[data-drawn]", state="attached")
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()


def violations(page: Any) -> list[str]:
    """Return what axe-core finds at any level, with the first element of each."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}" for one in found]


def complaints(path: Path, *, width: int = 1440) -> list[str]:
    """Open a page with all its details; return errors, requests, plots not drawn, edges cut and what axe finds."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with Seen(browser, path, width=width) as seen:
            seen.page.evaluate("openAll()")
            drawn = seen.page.evaluate("[...document.querySelectorAll('canvas')].map(c => c.width * c.height)")
            empty = "[...document.querySelectorAll('.plot')].filter(plot => !plot.querySelector('canvas')).length"
            found = violations(seen.page)
            if not drawn or not all(drawn) or seen.page.evaluate(empty):
                found.append("a plot is not drawn")
            if (edge := seen.page.evaluate("document.documentElement.scrollWidth")) != width:
                found.append(f"the page reaches to {edge} of {width} pixels")
        browser.close()
    return [*found, *seen.messages, *(url for url in seen.requests if url != path.as_uri())]
