"""The page's plots: small multiples, so that curves which lie on each other can still be told apart."""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from trainparity.report.artifacts import Artifacts, Distance, Run
from trainparity.report.format import number
from trainparity.report.svg import ACCENT, BAND, GRID, INK, MUTED, WARNING, render

KINDS = ("gradient", "update", "weight", "buffer")
MAX_POINTS = 400
"""Points of one curve; more would only make the page heavier."""

PointT = TypeVar("PointT")


def losses(artifacts: Artifacts) -> dict[str, Markup]:
    """Draw each trained configuration's loss over its reference's, all on the same axes."""
    trained = {name: run for name, run in artifacts.configurations.items() if run.losses}
    values = [loss for run in trained.values() for _, loss in run.losses if math.isfinite(loss)]
    if not values:
        return {}
    lowest, highest = min(values), max(values)
    log = lowest > 0 and highest > 50 * lowest
    room = 0.06 * (highest - lowest) or 1.0
    limits = (lowest / 1.2, highest * 1.2) if log else (lowest - room, highest + room)
    references = artifacts.references
    return {
        name: _loss(name, run, references[artifacts.params.reference_of(name)], limits, log)
        for name, run in trained.items()
    }


def _loss(name: str, run: Run, reference: Run, limits: tuple[float, float], log: bool) -> Markup:
    """Draw one panel: the reference as a wide pale line, the run as a thin one on top."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        if reference.losses:
            axes.plot(*zip(*_thin(reference.losses), strict=True), color=BAND, linewidth=5, alpha=0.9)
        axes.plot(*zip(*_thin(run.losses), strict=True), color=ACCENT, linewidth=1.3)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        if log:
            axes.set_yscale("log")
        else:
            axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_ylim(*limits)

    first, last = run.losses[0][1], run.losses[-1][1]
    label = f"Loss of {name} over {len(run.losses)} steps, from {number(first)} to {number(last)}"
    if reference.losses:
        label += f"; its reference ends at {number(reference.losses[-1][1])}"
    return render(3.3, 2.1, label, draw)


def distances(artifacts: Artifacts) -> dict[str, Markup]:
    """Draw each judged pair's distance over steps against its noise floor, one panel per kind of tensor."""
    every = [row for rows in artifacts.distances.values() for row in rows]
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in every)]
    margin = artifacts.parity.margin
    values = [v for row in every for v in (row.distance, row.floor * margin, row.floor) if 0 < v < math.inf]
    limits = (min(values) / 3, max(values) * 3) if values else (1e-9, 1.0)
    return {pair: _pair(pair, rows, kinds, margin, limits) for pair, rows in artifacts.distances.items()}


def _pair(
    pair: str, rows: Sequence[Distance], kinds: Sequence[str], margin: float, limits: tuple[float, float]
) -> Markup:
    """Draw one row of panels on common axes."""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, kinds, strict=True):
            axes.set_title(kind, fontsize=9, color=MUTED, loc="left")
            axes.set_xlabel("step")
            axes.set_yscale("log")
            axes.set_ylim(*limits)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.yaxis.set_major_locator(LogLocator(numticks=6))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{round(math.log10(value))}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.minorticks_off()
            _distance(axes, _worst([row for row in rows if row.kind == kind]), margin, limits)
        panels[0].set_ylabel("distance")

    worst = max(rows, key=_over_floor)
    label = (
        f"Distance over steps of pair {pair}: at worst {number(worst.distance)} ({worst.kind}, "
        f"step {worst.step}) on a noise floor of {number(worst.floor)}; "
        f"equivalent up to {number(margin)} times the floor"
    )
    return render(3.0 * len(kinds) + 0.4, 1.9, label, draw)


def _distance(axes: Axes, rows: Sequence[Distance], margin: float, limits: tuple[float, float]) -> None:
    """Draw the floor, the band up to the margin above it, and the distance, red where it leaves the band."""
    low, high = limits
    steps = [row.step for row in rows]
    floor = np.clip([row.floor for row in rows], low, high)
    distance = np.array([row.distance for row in rows])
    shown = np.clip(np.nan_to_num(distance, nan=high, posinf=high), low, high)
    axes.fill_between(steps, floor, np.clip(floor * margin, low, high), color=BAND, alpha=0.55, linewidth=0)
    axes.plot(steps, floor, color=MUTED, linewidth=1, linestyle=(0, (3, 2)))
    axes.plot(steps, shown, color=ACCENT, linewidth=1.4)
    beyond = np.array([_over_floor(row) > margin for row in rows], dtype=bool)
    zero = distance == 0
    for chosen, marker, colour in ((beyond, "x", WARNING), (zero, "o", ACCENT)):
        if chosen.any():
            x, y = np.array(steps)[chosen], shown[chosen]
            axes.plot(x, y, marker, markersize=3, color=colour, markerfacecolor="none", clip_on=False)


def step_times(artifacts: Artifacts) -> Markup | None:
    """Draw every timed step of the runs that really ran, with median and 10th to 90th percentile."""
    runs = [*artifacts.references.values(), *artifacts.configurations.values()]
    times = {run.status.run: run.timing.step_ms for run in runs if run.timing and not run.status.emulated}
    if not times:
        return None
    references = {run.status.run for run in artifacts.references.values()}
    every = [value for values in times.values() for value in values]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        if max(every) > 20 * min(every) > 0:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        else:
            axes.set_xlim(0, 1.08 * max(every))
        for row, (name, values) in enumerate(times.items()):
            _strip(axes, row, values, MUTED if name in references else ACCENT)
        axes.set_yticks(range(len(times)), list(times), color=INK)
        axes.set_ylim(len(times) - 0.45, -0.55)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("milliseconds per optimizer step")

    medians = (f"{name} {number(float(np.median(values)))}" for name, values in times.items())
    label = f"Wall time per optimizer step; medians in milliseconds: {', '.join(medians)}"
    return render(9.4, 0.75 + 0.42 * len(times), label, draw)


def _strip(axes: Axes, row: int, values: Sequence[float], colour: str) -> None:
    """Draw one run: a dot per step, a bar from the 10th to the 90th percentile, a line at the median."""
    p10, median, p90 = np.percentile(values, [10, 50, 90])
    axes.plot([p10, p90], [row, row], color=GRID, linewidth=9, solid_capstyle="butt")
    # Dots are spread by their place in the list, so that the same times give the same picture.
    dots = _thin(values)
    spread = [row + 0.2 * ((index * 0.618) % 1 - 0.5) for index in range(len(dots))]
    axes.plot(dots, spread, linestyle="none", marker="o", markersize=3.2, color=colour, alpha=0.55, mew=0)
    axes.plot([median, median], [row - 0.26, row + 0.26], color=INK, linewidth=1.8)
    text = {"xytext": (4, 9), "textcoords": "offset points", "fontsize": 8, "color": INK, "va": "center"}
    axes.annotate(number(float(median)), (float(median), row), **text)  # type: ignore[arg-type]


def _over_floor(row: Distance) -> float:
    """Return distance / floor; infinite for any distance above a floor of 0 and for a run that diverged."""
    if row.distance == 0:
        return 0.0
    if not math.isfinite(row.distance) or row.floor == 0:
        return math.inf
    return row.distance / row.floor


def _thin(points: Sequence[PointT]) -> list[PointT]:
    """Keep every n-th point, so that at most MAX_POINTS + 1 stay; the last one always does."""
    stride = math.ceil(len(points) / MAX_POINTS)
    kept = list(points[::stride])
    return kept if (len(points) - 1) % stride == 0 else [*kept, points[-1]]


def _worst(rows: Sequence[Distance]) -> list[Distance]:
    """Keep the worst of every n steps, so that thinning hides no step beyond the margin."""
    stride = max(1, math.ceil(len(rows) / MAX_POINTS))
    return [max(rows[start : start + stride], key=_over_floor) for start in range(0, len(rows), stride)]
