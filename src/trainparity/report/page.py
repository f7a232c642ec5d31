"""The report as one HTML file that needs nothing else: no script, no network, no other file."""

import base64
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainparity.report import format, plots, styles, words
from trainparity.report.artifacts import Artifacts
from trainparity.report.columns import pairs, runs
from trainparity.report.columns.claims import CLAIMS
from trainparity.report.columns.column import shown_in
from trainparity.report.columns.controls import CONTROLS
from trainparity.report.columns.pairs import PAIRS
from trainparity.report.columns.runs import RUNS
from trainparity.report.schema import Summary


def render(summary: Summary, artifacts: Artifacts) -> str:
    """Return the page; equal input gives equal bytes."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": format.number,
        "fixed": format.fixed,
        "mebibytes": format.mebibytes,
    }
    return environment.get_template("page.html.j2").render(
        summary=summary,
        words=words,
        key=styles.key,
        symbols=styles.SYMBOLS,
        runs=runs.rows(summary),
        run_columns=RUNS,
        pairs=pairs.rows(summary),
        pair_columns=PAIRS,
        claim_columns=CLAIMS,
        control_columns=CONTROLS,
        shown_in=shown_in,
        losses=plots.losses(artifacts),
        distances=plots.distances(artifacts),
        step_times=plots.step_times(artifacts),
        params=artifacts.params,
        picture=artifacts.picture and base64.b64encode(artifacts.picture).decode(),
    )
