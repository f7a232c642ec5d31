"""Reports as one HTML file that needs nothing else: no network, no other file, no script but the page's own."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from trainparity.records.detail import Detail
from trainparity.records.verdict import SAME_TRAINING, Verdict
from trainparity.report import curves, data, styles, templates, trend
from trainparity.report.comparison import Comparison, chips, headline, title
from trainparity.report.origin import Origin
from trainparity.report.templating import environment
from trainparity.report.vendor import uplot


class Section(NamedTuple):
    """A part of a page; its template is `templates/section_<id>.html.j2`."""

    id: str
    title: str


_GROUPS = {
    Section("differences", "What differs"): ("different", "drifted"),
    Section("unjudged", "Not judged"): ("failed", "cannot judge"),
    Section("same", "The same training"): SAME_TRAINING,
    Section("skipped", "Skipped"): ("skipped",),
}
"""Sections of comparisons by their outcomes, in the order in which they are told."""


def compared(
    verdicts: Mapping[str, Verdict], details: Mapping[str, Mapping[str, Detail]], origin: Origin, *, command: str
) -> str:
    """Return the page of a command that compares runs.

    Args:
        verdicts: By title of the comparison, at least one.
        details: By the same titles and by model, of those that were judged.
        origin: Where the page comes from.
        command: The command's name and subject, such as `compare`.
    """
    comparisons = [
        Comparison(number=number, title=name, verdict=verdict, details=details.get(name, {}))
        for number, (name, verdict) in enumerate(verdicts.items())
    ]
    computed = [Section("computed", "Environment")] if any(details.values()) else []
    return render(comparisons, origin, subject=command, eyebrow=f"trainparity {command}", lead=[], sections=computed)


def render(
    comparisons: Sequence[Comparison],
    origin: Origin,
    *,
    subject: str,
    eyebrow: str,
    lead: Sequence[str],
    sections: Sequence[Section],
    losses: curves.Curves | None = None,
    ratios: Mapping[str, Sequence[float]] | None = None,
    reproduce: Sequence[tuple[str, str]] = (),
    links: Sequence[str] = (),
    **more: Any,
) -> str:
    """Return a page: the answer and the comparisons, then `sections`, what reproduces it; equal input, equal bytes.

    Args:
        comparisons: At least one.
        origin: Where the page comes from.
        subject: What was compared, for the title of the browser's tab.
        eyebrow: The line above the headline.
        lead: Sentences below it.
        sections: Between the comparisons and the end.
        losses: What `Loss` draws.
        ratios: What `Time` draws: speed-ups of pairs of steps, by configuration.
        reproduce: What, and the command or fingerprint that reproduces it.
        links: Files beside the page.
        more: What the sections' templates need besides.
    """
    groups = {section: [one for one in comparisons if one.outcome in outcomes] for section, outcomes in _GROUPS.items()}
    shown = [section for section, members in groups.items() if members]
    scripts = [path.read_text(encoding="utf-8") for path in (uplot.SCRIPT, templates.FOLDER / "page.js")]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            **{section.id: members for section, members in groups.items()},
            **more,
            comparisons=comparisons,
            headline=headline(comparisons),
            chips=chips(comparisons),
            title=title(comparisons),
            subject=subject,
            eyebrow=eyebrow,
            lead=lead,
            sections=[*shown, *sections, Section("reproduce", "Reproduce"), Section("glossary", "Glossary")],
            margin=comparisons[0].verdict.margin,
            numbers=data.pack(comparisons, losses, ratios or {}),
            plot_style=Markup(uplot.STYLE.read_text(encoding="utf-8")),
            scripts=[Markup(script) for script in scripts],
            script_hashes=" ".join(_hash(script) for script in scripts),
            origin=origin,
            reproduce=reproduce,
            links=links,
            symbols=styles.SYMBOLS,
            points=trend.points,
        )
    )


def _hash(script: str) -> Markup:
    """Return the source expression by which a Content-Security-Policy allows an inline script (CSP Level 3, 2.3.1)."""
    return Markup(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'")
