"""The page of a whole pipeline: the answer, and below it time, loss, claims and environment."""

import base64
from collections.abc import Iterator
from typing import Any

from trainparity.records.base import significant
from trainparity.records.numbers import number
from trainparity.report import claims, curves, page, pictures, words
from trainparity.report.artifacts import Artifacts
from trainparity.report.columns import pairs, runs
from trainparity.report.columns.claims import CLAIMS
from trainparity.report.columns.column import shown_in
from trainparity.report.columns.controls import CONTROLS
from trainparity.report.columns.pairs import PAIRS
from trainparity.report.columns.runs import RUNS
from trainparity.report.comparison import Comparison
from trainparity.report.origin import Origin
from trainparity.report.page import Section
from trainparity.report.schema import Summary
from trainparity.report.speedup import ratios

_LINKS = ("summary.json", "parity.csv", "timing.csv")


def render(summary: Summary, artifacts: Artifacts, origin: Origin) -> str:
    """Return the page; equal input gives equal bytes."""
    losses = curves.of(artifacts)
    more: dict[str, Any] = {
        "summary": summary,
        "words": words,
        "notes": [note for note in words.notes(summary) if note.kind not in words.OF_PAIRS],
        "runs": runs.rows(summary),
        "run_columns": RUNS,
        "pairs": pairs.rows(summary),
        "pair_columns": PAIRS,
        "claim_columns": CLAIMS,
        "claim_ratios": claims.of(summary.claims.results) if summary.claims else None,
        "control_columns": CONTROLS,
        "shown_in": shown_in,
        "last_losses": [(row.name, number(row.run.status.loss)) for row in runs.rows(summary) if not row.absent],
        "speedups": pictures.speedups(summary),
        "step_times": pictures.step_times(summary),
        "step_parts": pictures.step_parts(summary),
        "break_even": list(words.break_even(summary)),
        "picture": artifacts.picture and base64.b64encode(artifacts.picture).decode(),
    }
    dataset = f"{summary.workload.name} on {summary.dataset.name}"
    return page.render(
        _comparisons(summary, artifacts),
        origin,
        subject=dataset,
        eyebrow=f"trainparity: {dataset}, global batch {summary.global_batch_size}, {words.dates_sentence(summary)}",
        lead=[words.parity_sentence(summary), words.gain_sentence(summary)],
        sections=_sections(summary, artifacts, losses),
        losses=losses,
        ratios=_ratios(summary),
        reproduce=[("Fingerprint", summary.fingerprint), *_commands(summary)],
        links=_LINKS,
        **more,
    )


def _comparisons(summary: Summary, artifacts: Artifacts) -> list[Comparison]:
    details = artifacts.details
    return [
        Comparison(
            number=place,
            title=f"{verdict.left} / {verdict.right}",
            verdict=verdict,
            details={"": details[name]} if name in details else {},
            emulated=words.imitated(summary, verdict),
            command=words.again(verdict.right) if verdict.right in summary.configurations else None,
            remedy=words.remedy(summary, verdict),
        )
        for place, (name, verdict) in enumerate(summary.pairs.items())
    ]


def _sections(summary: Summary, artifacts: Artifacts, losses: curves.Curves | None) -> list[Section]:
    """Return the sections that this pipeline has something to say in."""
    wanted = {
        Section("configurations", "Configurations"): True,
        Section("time", "Time"): any(run.timing for run in summary.configurations.values()),
        Section("claims", "Claims"): summary.claims is not None,
        Section("loss", "Loss"): losses is not None,
        Section("curves", "Learning curves"): bool(summary.curves),
        Section("picture", "What the model makes"): artifacts.picture is not None,
        Section("parity", "Distances"): True,
        Section("known", "Known answer"): summary.known_answer is not None,
        Section("controls", "Controls"): summary.controls is not None,
        Section("environment", "Environment"): True,
    }
    return [section for section, present in wanted.items() if present]


def _ratios(summary: Summary) -> dict[str, list[float]]:
    """Return the speed-up of each pair of steps, of the configurations that may show one."""
    timings = {name: run.timing for name, run in summary.configurations.items() if run.speedup and run.timing}
    return {
        name: [significant(ratio, 4) for ratio in ratios(timing.reference_ms, timing.step_ms)]
        for name, timing in timings.items()
    }


def _commands(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield what makes each kind of figure again, whatever is cached."""
    yield "Verdicts", "python -m trainparity.stages compare"
    for run in list(summary.references.values())[:1]:
        yield "References", words.again(run.reference)
    for name in summary.configurations:
        yield name, words.again(name)
