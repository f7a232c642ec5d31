"""Measures about parity: the same weights, shards, training or learning."""

import numpy as np

from trainparity.claims import quantities
from trainparity.claims.measures.figure import Figure
from trainparity.claims.study import NotMeasurable, Study
from trainparity.records.numbers import exact
from trainparity.records.verdict import JUDGED, SAME_TRAINING


def weights(measure: quantities.Weights, study: Study) -> Figure:
    """Compare final weights with published digits (article B)."""
    found = {run: study.weights(run) for run in measure.runs}
    equal = {run: measure.equal(values) for run, values in found.items()}
    shown = ", ".join(f"{value:.{measure.decimals}f}" for value in found[measure.runs[0]])
    same = "same digits from " + " and ".join(measure.runs) if all(equal.values()) else f"digits equal: {equal}"
    return Figure(f"[{shown}]; {same}", holds=all(equal.values()))


def shards(measure: quantities.Shards, study: Study) -> Figure:
    """Compare which rank saw which sample with the micro-batches of an accumulating run (article B)."""
    ranks, passes = (study.trace(run).arrays for run in (measure.run, measure.order))
    by_rank = ranks["rank/samples"]  # [T, R, n]; sample + 1, 0 fills up
    num_steps, world_size, _ = by_rank.shape
    in_order = passes["rank/samples"][:, 0].reshape(num_steps, world_size, -1)
    holds = bool(by_rank.shape == in_order.shape and (by_rank == in_order).all())
    first = "; ".join(f"rank {r}: {_listed(row)}" for r, row in enumerate((by_rank[0] - 1).tolist()))
    return Figure(f"step 0: {first}; micro-batches of {measure.order} {'the same' if holds else 'others'}", holds=holds)


def same_training(measure: quantities.SameTraining, study: Study) -> Figure:
    """List the verdicts on pairs."""
    pairs = {name: study.pair(name) for name in measure.pairs}
    for name, pair in pairs.items():
        if pair.verdict not in JUDGED:
            raise NotMeasurable(f"{name}: {pair.verdict}: {pair.reason}")
    text = ", ".join(f"{n} {pair.verdict}" + (f" ({pair.cause})" if pair.cause else "") for n, pair in pairs.items())
    return Figure(text, holds=all(pair.verdict in SAME_TRAINING for pair in pairs.values()))


def parameters(measure: quantities.Parameters, study: Study) -> Figure:
    """Count a run's parameters."""
    count = study.num_parameters(measure.run, measure.scale)
    return Figure(f"{count:,}", value=count, remark=measure.scale and f"built, not trained, at {measure.scale} scale")


def learns_alike(measure: quantities.LearnsAlike, study: Study) -> Figure:
    """Return the verdict on two recipes' learning curves."""
    result = study.curves(measure.curves)
    if result.verdict not in ("consistent", "drifted"):
        raise NotMeasurable(result.sentence)
    return Figure(result.sentence, holds=result.verdict == measure.verdict)


def losses_fall(measure: quantities.LossesFall, study: Study) -> Figure:
    """Compare the first fifth of each run's losses with the last."""
    parts = {run: np.array_split(study.losses(run), 5) for run in measure.runs}
    ends = {run: (float(part[0].mean()), float(part[-1].mean())) for run, part in parts.items()}
    text = ", ".join(f"{run} {exact(first, 4)} -> {exact(last, 4)}" for run, (first, last) in ends.items())
    return Figure(text, holds=all(last < first for first, last in ends.values()))


def _listed(samples: list[int]) -> str:
    shown = " ".join(map(str, samples[:8]))
    return f"{shown} ..." if len(samples) > 8 else shown
