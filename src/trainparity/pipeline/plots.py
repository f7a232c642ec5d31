"""DVC's page of plots with the library that draws them inside: DVC's own loads it from the network."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainparity import extras
from trainparity.errors import UserError
from trainparity.records.files import write_text

_LOADED = re.compile(r'\s*<script src="https://[^"]*/npm/vega[^"]*"></script>')
_DRAWS = "window.vegaEmbed = vegaEmbed;"


def draw(revisions: Sequence[str], page: Path) -> None:
    """Write what `dvc plots diff` shows of some revisions as one file, which loads nothing.

    Args:
        revisions: Of Git, or names of experiments; none: the last commit and what has changed since, without Git what
            there is.
        page: The file.

    Raises:
        MissingExtra: DVC, or the package that holds Vega, is not installed.
        UserError: DVC can't show these revisions; it has said why.
    """
    extras.require("dvc")
    extras.require("vl_convert")
    import vl_convert

    in_git = any((folder / ".git").exists() for folder in (Path.cwd(), *Path.cwd().parents))
    with tempfile.TemporaryDirectory() as folder:
        plots = ["plots", "diff" if revisions or in_git else "show", "--out", folder, *revisions]
        dvc = [sys.executable, "-m", "trainparity.pipeline.dvc", *plots]
        done = subprocess.run(dvc, stdout=subprocess.DEVNULL, check=False)
        drawn = Path(folder, "index.html")
        if done.returncode or not drawn.exists():
            raise UserError("DVC has nothing to draw, see above; the plots are there once `trainparity repro` has run")
        html, found = _LOADED.subn("", drawn.read_text(encoding="utf-8"))
    if not found:
        raise UserError("this version of DVC draws with another library than Vega: use `dvc plots diff`")
    script = f"<script>{vl_convert.javascript_bundle(_DRAWS)}</script>"
    write_text(page, html.replace("</head>", f"{script}\n</head>", 1))
