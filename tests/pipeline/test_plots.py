"""DVC's page of two revisions, drawn by a browser that has no network."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import CHROMIUM
from trainparity.errors import UserError
from trainparity.pipeline.plots import draw

PLOTS = "plots:\n- loss:\n    x: step\n    y: {loss.csv: loss}\n    title: Loss\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DVC repository whose last commit has another loss than its working tree."""
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for line in ([*git, "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(line, check=True)
    (tmp_path / "dvc.yaml").write_text(PLOTS)
    (tmp_path / "loss.csv").write_text("step,loss\n0,2.3\n1,2.1\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    (tmp_path / "loss.csv").write_text("step,loss\n0,2.3\n1,1.9\n")
    return tmp_path


def test_the_page_is_drawn_without_a_request(project: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    page = project / "out" / "page.html"
    draw([], page)
    asked: list[str] = []
    wrong: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page()
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        shown.goto(page.as_uri())
        shown.wait_for_selector("canvas, svg.marks")
        browser.close()
    assert (asked, wrong) == ([page.as_uri()], [])
    with pytest.raises(UserError, match="DVC has nothing to draw"):
        draw(["no-such-revision"], page)
    assert page.exists()


def test_without_git_it_shows_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], check=True)
    with pytest.raises(UserError, match="DVC has nothing to draw"):
        draw([], Path("page.html"))
    (tmp_path / "dvc.yaml").write_text(PLOTS)
    (tmp_path / "loss.csv").write_text("step,loss\n0,2.3\n1,2.1\n")
    draw([], Path("page.html"))
    assert "vegaEmbed('#" in Path("page.html").read_text()
