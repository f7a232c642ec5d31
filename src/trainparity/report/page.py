"""The report as one HTML file that needs nothing else: no script, no network, no other file."""

import base64
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainparity.report import format, plots, words
from trainparity.report.artifacts import Artifacts
from trainparity.report.schema import Summary

SYMBOLS = {
    "bitwise": "=",
    "equivalent": "≈",
    "different": "≠",
    "skipped": "–",
    "failed": "✕",
    "not compared": "?",
    "reference": "•",
    "consistent": "≈",
    "drifted": "≠",
    "cannot judge": "?",
    "confirmed": "✓",
    "not confirmed": "✕",
    "not measurable here": "–",
}
"""Read together with the verdict's word; the colour only repeats them."""


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
        "speedup": format.speedup,
        "range": format.step_time,
        "rate": format.rate,
        "percent": format.percent,
        "moment": format.moment,
    }
    return environment.get_template("page.html.j2").render(
        summary=summary,
        words=words,
        nothing=format.NOTHING,
        symbols=SYMBOLS,
        losses=plots.losses(artifacts),
        distances=plots.distances(artifacts),
        step_times=plots.step_times(artifacts),
        params=artifacts.params,
        picture=artifacts.picture and base64.b64encode(artifacts.picture).decode(),
    )
