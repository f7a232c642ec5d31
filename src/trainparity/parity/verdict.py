"""Whether two runs are the same training: `bitwise`, `equivalent`, `different`, or why that cannot be judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainparity.parity.causes import FACTS
from trainparity.parity.causes.averages import written_in_one_run
from trainparity.parity.causes.ranks import agree, disagreement
from trainparity.parity.copied_weights import LEAVE_THEM, TAKEN, take_other_gradients
from trainparity.parity.diagnosis import explain
from trainparity.parity.divergence import divergence
from trainparity.parity.extent import extent
from trainparity.parity.line_search import line_search_parts
from trainparity.parity.noise.assumed import OF_TWINS, assumed_only, moved_within_steps
from trainparity.parity.noise.distance import KINDS, Judged, distances, multiples, names, norms, without_nobodys
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.margin import margin_of
from trainparity.parity.noise.of_two_runs import of_two_runs
from trainparity.parity.noise.resolution import gradient_width, resolutions, update_noise, update_width
from trainparity.parity.noise.same_passes import behind_same_passes
from trainparity.parity.noise.too_wide import APART, LOST, hardly_apart, too_wide
from trainparity.parity.noise.widened import Widened
from trainparity.parity.other_parameters import other_parameters
from trainparity.parity.recording.integrity import flaw
from trainparity.parity.recording.trace import Trace, comparable
from trainparity.parity.steps.difference import Difference
from trainparity.parity.surroundings import other_surroundings
from trainparity.parity.unclipped import unclipped
from trainparity.parity.worst import worst
from trainparity.records.run import Status
from trainparity.records.verdict import Outcome, Verdict


@dataclass(frozen=True)
class Run:
    """A run's status, and its trace if it trained."""

    status: Status
    trace: Trace | None


def judge(left: Run, right: Run, floor: Floor | None, margin: float) -> Verdict:
    """Judge two runs of a pipeline.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: The noise floor of the reference of the runs' precision; None if that did not train.
        margin: `equivalent` means that no tensor is beyond this multiple of the floor at any step.
    """
    names = left.status.run, right.status.run
    untrained = [run.status for run in (left, right) if run.trace is None]
    for status in sorted(untrained, key=lambda status: status.status != "failed"):
        outcome: Outcome = "failed" if status.status == "failed" else "skipped"
        # The verdict's word and its right side are named beside the reason already.
        reason = status.reason if status.run == names[1] else None
        return _not_judged(names, margin, reason or status.ending, outcome)
    assert left.trace and right.trace
    ours, theirs = left.trace.layout.precision, right.trace.layout.precision
    if ours != theirs:
        reason = f"{names[0]} computes in {ours} and {names[1]} in {theirs}: only runs of one precision are compared"
        return _not_judged(names, margin, reason)
    if floor is None:
        return _not_judged(names, margin, "there is no noise floor: the reference did not train")
    return judge_traces(left.trace, right.trace, floor, margin, names)


def judge_traces(
    left: Trace, right: Trace, floor: Floor, margin: float, names: tuple[str, str] = ("left", "right")
) -> Verdict:
    """Judge two traces: verdict, distances and, if they differ, the cause.

    What is not known never counts as equal: without a tensor beyond the floor the verdict is then `cannot judge`.
    """
    if (refused := _incomparable(left, right, margin, names)) is not None:
        return refused
    margin = margin_of(left.layout, margin)
    left, right = unclipped(*without_nobodys(left, right), floor["gradient"][:, -1])
    floor = of_two_runs(left, right, floor)
    narrow = behind_same_passes(left, right, floor)
    off = {kind: multiples(left, right, kind, narrow[kind]) for kind in KINDS}
    all_bits = same_bits(left, right)
    if all_bits:  # an update is the rest of what happens to weights, which a loop decays by itself, say
        off["update"] = torch.zeros_like(off["update"])
    training = _rows_of_training(left, right, floor, off, margin)
    training += _rows_of_facts(left, right, narrow, margin, all_bits=all_bits)
    rows = training or _rows((off["buffer"] > margin).any(1))
    furthest = worst(left, right, narrow, off)
    verdict = Verdict(
        left=names[0],
        right=names[1],
        verdict="different" if rows else "bitwise" if all_bits else "equivalent",
        weights="different" if training else "bitwise" if same_bits(left, right, _TRAINING) else "equivalent",
        distance_over_floor=max((one.distance_over_floor for one in furthest), default=0.0),
        margin=margin,
        calibrated=floor.calibrated,
        worst=furthest,
        ranks_agree=agree(left) and agree(right),
        environment=other_surroundings(left.layout, right.layout, names),
        **extent(left.layout, right.layout),
    )
    if rows:
        return _explained(verdict, Difference(left, right, narrow, margin, min(rows), names), rows)
    if take_other_gradients(left, right, floor, margin):
        return verdict.unclear(TAKEN, advice=LEAVE_THEM)
    return verdict if all_bits else _resolved(verdict, left, right, floor, off)


def _incomparable(left: Trace, right: Trace, margin: float, names: tuple[str, str]) -> Verdict | None:
    """Return what is said of traces of which no steps are compared; None: they are."""
    for name, trace in zip(names, (left, right), strict=True):
        if damage := flaw(trace.layout, trace.arrays):
            return _not_judged(names, margin, f"the trace of {name} is damaged: {damage}")
    if mismatch := comparable(left.layout, right.layout):
        found = other_parameters(names, margin, left, right)
        return found if found is not None else _not_judged(names, margin, mismatch)
    margin = margin_of(left.layout, margin)
    if diverged := divergence(left):
        return _not_judged(names, margin, f"{names[0]} diverged: {diverged}")
    if not _trained(left):
        return _not_judged(names, margin, "training did not change any weight")
    return None


def _rows_of_training(
    left: Trace, right: Trace, floor: Floor, off: Mapping[Judged, Tensor], margin: float
) -> list[int]:
    """Return the rows in which the training differs beyond the floor, or ranks part."""
    # Where twins' updates have little in common, as of an optimizer that jumps, those of a right run may lie anywhere.
    known = update_noise(left, floor) <= LOST / APART
    beyond = torch.stack([(off[kind] > margin).any(1) & (known | (kind == "gradient")) for kind in _TRAINING])
    apart = [row for row in (disagreement(left, right),) if row is not None]
    return _rows(beyond.any(0)) + apart


def _resolved(verdict: Verdict, left: Trace, right: Trace, floor: Floor, off: Mapping[Judged, Tensor]) -> Verdict:
    """Say of what a verdict of `equivalent` could have seen, or why that is too little."""
    if unknown := floor.flaw or _unknown(left, off):
        return verdict.unclear(unknown)
    margin = verdict.margin
    if assumed := assumed_only(left, right, floor, margin):
        return verdict.unclear(assumed, advice=OF_TWINS)
    width = gradient_width(left, floor)
    most = min(margin, _WIDEST / width) if width else margin
    wide = too_wide(left, right, floor, most, verdict.worst, verdict.left)
    if wide and not hardly_apart(left, right, verdict.worst):
        hidden = _in_one_coarse_format(left, right)
        finer = "`trainparity ab` and `trainparity check` judge such runs in float64" if hidden else None
        advice = finer if floor.calibrated else OF_TWINS
        return verdict.unclear(wide, advice=advice, hidden_by_floor=hidden)
    of_updates = update_width(left, floor)
    seen = resolutions(left, floor, most, min(most, LOST / of_updates) if of_updates else most)
    return verdict.model_copy(update={"resolution": width * most, "resolutions": seen})


def _explained(verdict: Verdict, difference: Difference, rows: Sequence[int]) -> Verdict:
    """Explain what differs from a step on, or say what may have moved the weights there as no twin did."""
    difference = _from_where_buffers_feed(difference)
    if undecided := line_search_parts(difference):
        return verdict.unclear(undecided)
    explained, floor = explain(verdict, difference), difference.floor
    named = explained.cause not in ("backward", "unknown")
    by_distance = not named or explained.cause == "update"
    if by_distance and (undecided := moved_within_steps(difference.left, difference.right, floor)):
        return verdict.unclear(undecided, advice=OF_TWINS)
    if named or not isinstance(floor, Widened) or (grown := floor.outgrown(difference.row)) is None:
        return explained
    # Where a later window begins, from equal weights, nothing has grown.
    anew = sorted({*rows} & {*difference.left.layout.rows_that_begin()})
    if anew:
        return explain(verdict, replace(difference, row=anew[0]))
    why, advice = grown
    return verdict.unclear(why, advice=advice)


def _from_where_buffers_feed(difference: Difference) -> Difference:
    """Return the difference of the step before, where its buffers feed what differs in a step."""
    before = replace(difference, row=max(0, difference.row - 1))
    parted = difference.row == disagreement(difference.left, difference.right) or _is_exact(difference)
    return before if not parted and before.fed_by_buffers else difference


def _in_one_coarse_format(left: Trace, right: Trace) -> bool:
    """Tell whether float64 computes what both runs do, with less rounding."""
    formats = [(trace.layout.precision, trace.layout.stored_roundoff) for trace in (left, right)]
    return formats[0] == formats[1] and left.layout.precision != "fp64"


def _rows_of_facts(left: Trace, right: Trace, floor: Floor, margin: float, *, all_bits: bool) -> list[int]:
    """Return the rows in which something that is recorded exactly differs, such as an option of the optimizer.

    And those in which the forward pass, the loss or the optimizer's step does though gradients are within the floor.
    Of runs of the same bits, which other options make too, those in which one alone writes where no bits are compared.
    """
    first = Difference(left, right, floor, margin, row=0)
    steps = [replace(first, row=row) for row in range(len(left.layout.steps))]
    if all_bits:
        return [step.row for step in steps if written_in_one_run(step)]
    return [step.row for step in steps if step.passes_part or _is_exact(step)]


def _is_exact(difference: Difference) -> bool:
    """Tell whether something that is recorded exactly differs, or what the optimizer's own arithmetic has made."""
    return bool(difference.made_otherwise) or any(rule.differs(difference) for rule in FACTS if rule.differs)


def _not_judged(names: tuple[str, str], margin: float, reason: str, outcome: Outcome = "cannot judge") -> Verdict:
    return Verdict(left=names[0], right=names[1], verdict=outcome, reason=reason, margin=margin)


_WIDEST = 0.5
"""Relative distance of gradients that a floor times the margin must not excuse: a wide floor takes a smaller margin."""


def _unknown(left: Trace, off: Mapping[Judged, Tensor]) -> str | None:
    """Name the first step and tensor whose distance is not known."""
    for kind, apart in off.items():
        for row, column in apart.isnan().nonzero().tolist()[:1]:
            tensor, step = names(left, kind)[column], left.layout.steps[row]
            return f"{kind} {tensor} is not finite at step {step}, though the runs went on: nothing can be said of it"
    return None


_TRAINING: tuple[Judged, ...] = ("gradient", "update", "weight")


def _rows(beyond: Tensor) -> list[int]:
    """Return the rows of a mask that are set."""
    rows: list[int] = beyond.nonzero().flatten().tolist()
    return rows


def same_bits(left: Trace, right: Trace, kinds: Sequence[Judged] = KINDS) -> bool:
    """Tell whether all hashes are equal, and the sketches with them; an update is what weights differ by."""
    hashed = [kind for kind in kinds if kind != "update"]
    equal = all(torch.equal(*(trace.arrays[f"{kind}/digest"] for trace in (left, right))) for kind in hashed)
    return equal and all(bool((distances(left, right, kind) == 0).all()) for kind in hashed)


def _trained(trace: Trace) -> bool:
    return bool((norms(trace, "update") > 0).any())
