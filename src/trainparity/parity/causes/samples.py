"""Other samples, or another number of them."""

from collections import Counter

import torch

from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.lengths import BY_CHANCE, is_cut_off, of_other_length
from trainparity.parity.causes.passes import one_passes_more_aside, passes_by_size, same_cut, without_own_samples
from trainparity.parity.causes.ranks import part_on_purpose
from trainparity.parity.recording.names import is_of_sums
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.identities import identities, over_the_run, same_over_the_run, without
from trainparity.records.numbers import counted


def _samples_differ(difference: Difference) -> bool:
    """Tell whether other samples are seen, where a sample keeps its identity."""
    hashes, counts = difference.pair("samples"), difference.pair("num_samples")
    if hashes is None or counts is None or not all(counts) or torch.equal(*hashes):
        return False
    if one_passes_more_aside(difference) or _each_as_often(difference) or _made_beside_others(difference):
        return False
    if all(trace.layout.settings.get("samples") == "identity" for trace in difference.traces):
        return True
    if of_other_length(difference) or _rows_of_other_passes(difference):
        return False
    ours, theirs = over_the_run(*difference.traces)
    common = 2 * len(ours & theirs) >= min(len(ours), len(theirs)) > 0
    return difference.floor.same_samples and common and _one_would_hide(difference)


def _each_as_often(difference: Difference) -> bool:
    """Tell whether one run passes each sample so many times as often, as where each term of a loss has its own pass."""
    ours, theirs = (Counter(identities(trace, difference.row)) for trace in difference.traces)
    times = {theirs[sample] / count for sample, count in ours.items()}
    return ours.keys() == theirs.keys() and len(times) == 1


def _made_beside_others(difference: Difference) -> bool:
    """Tell whether only one run passes what another model made together with other samples, as real and fake ones.

    It is known by its contents there, and in passes of its own by what it was made of. Both return as many rows then.
    """
    if set(difference.left.layout.outputs) & difference.of_other_size:
        return False
    (elsewhere, ours), (there, theirs) = (
        (bool(trace.arrays["made_elsewhere"][difference.row]), set(identities(trace, difference.row)))
        for trace in difference.traces
    )
    return elsewhere != there and (ours < theirs if elsewhere else theirs < ours)


def _rows_of_other_passes(difference: Difference) -> bool:
    """Tell whether what the model is given has other rows than it returns, and the runs cut it into other passes.

    Those may be time steps [T, B, ...], of which each holds other samples then.
    """
    layouts = [trace.layout for trace in difference.traces]
    rows = all(name in one.activations and not is_of_sums(name) for one in layouts for name in one.outputs)
    return not rows and not same_cut(difference)


_SHARE = 0.1
"""Part of its equal share in a step's gradient that a sample has at least, whatever the others are."""


def _one_would_hide(difference: Difference) -> bool:
    """Tell whether gradients could be within the margin though one of the samples is another one.

    Where they could not, and are, other contents are other padding, or the same sample cut into other calls.
    """
    excused = float(difference.floor["gradient"][difference.row, -1]) * difference.margin
    return excused * max(difference.numbers("num_samples")) > _SHARE


@rule(
    "samples",
    "inputs",
    proof="the multiset of samples differs: left out, twice, replaced, or the same over the run in another order",
    advice="shard each global batch, seed the sampler",
    differs=_samples_differ,
)
def other_samples(difference: Difference) -> Finding | None:
    """Other samples, more or fewer of them, or some of them twice."""
    hashes, counts = difference.pair("samples"), difference.pair("num_samples")
    decides = difference.stage == "gradient" or part_on_purpose(difference) or _samples_differ(difference)
    if hashes is None or counts is None or not decides:
        return None
    if not (all(counts) or without_own_samples(difference)) or torch.equal(*hashes):
        return None
    ours, theirs = (identities(trace, difference.row) for trace in difference.traces)
    missing, extra = without(ours, theirs), without(theirs, ours)
    if missing and extra and not _identified(difference):
        return None
    if not (missing and extra) and (one_passes_more_aside(difference) or _made_beside_others(difference)):
        return None
    if difference.is_a_multiple and 2 * max(len(missing), len(extra)) < len(ours):
        return None  # a point that each micro-batch takes, as the boundary of an equation
    twice = len(theirs) - len(set(theirs))
    evidence: Evidence = {
        "samples": [float(count) for count in counts],
        "missing": len(missing),
        "extra": len(extra),
        "duplicates": twice,
        "identified_by": str(difference.right.layout.settings.get("samples", "content")),
    }
    left_out = f"{_samples(len(missing), 'is', 'are')} left out"
    if same_over_the_run(*difference.traces):
        what, advice = "the same samples come in another order over the run", "give both runs one seed, and set_epoch"
    elif twice and not len(ours) - len(set(ours)) and set(extra) <= set(ours):
        what, advice = (
            f"{_samples(twice, 'comes', 'come')} twice",
            "stop the sampler from padding uneven shards with repeated samples",
        )
    elif not missing:
        what, advice = (
            f"{_samples(len(extra), 'more is', 'more are')} seen",
            "count world size and accumulation once in the size of a micro-batch",
        )
    elif not extra and (several := _spread_over(difference, ours)):
        what, advice = (
            f"{left_out}, and {'comes' if len(missing) == 1 else 'come'} in the steps after it: "
            f"{several} steps are made of one",
            "call optimizer.step() once, after the last micro-batch's backward",
        )
    elif not extra and (passes := _passes_left_out(difference)):
        have = "1 forward pass has that is" if passes == 1 else f"{passes} forward passes have that are"
        what = f"{left_out}, as many as {have} made no more"
        advice = "keep every micro-batch, and each term of the loss that has a forward pass of its own"
    elif not extra:
        what, advice = left_out, "keep the last batch (drop_last) and every rank's share"
    else:
        what = _samples(len(missing), "is replaced by another", "are replaced by others")
        advice = "shard each global batch, seed the sampler"
    return Finding(f"at step {difference.step} of {difference.runs[1]} {what}", evidence, advice=advice)


def _samples(count: int, does: str, do: str) -> str:
    """Write how many samples there are, with the verb that one takes or several."""
    return f"{counted(count, 'sample')} {does if count == 1 else do}"


@rule(
    "samples",
    "inputs",
    proof="equal samples in equal passes, and another number of passes over what another model makes",
    advice="pass what the other model makes as often as the reference does, for each term of the loss",
)
def made_left_out(difference: Difference) -> Finding | None:
    """What another model makes is not passed, or more often, as fakes that a discriminator does not see."""
    passes = difference.numbers("made_elsewhere")
    hashes, rows = difference.pair("samples"), difference.pair("rank/rows")
    if difference.stage != "gradient" or passes[0] == passes[1] or hashes is None or rows is None:
        return None
    if not torch.equal(*hashes) or not torch.equal(*rows) or not rows[0].any():
        return None
    return Finding(
        f"at step {difference.step} {difference.runs[1]} makes {passes[1]:g} forward passes over what another model "
        f"has made, and {difference.runs[0]} {passes[0]:g}; samples of its own are the same in both",
        {"passes_over_what_another_model_made": [*passes]},
    )


def _passes_left_out(difference: Difference) -> int:
    """Return how many passes of the reference the other run does not make, where its others are of the same sizes."""
    ours, theirs = passes_by_size(difference)
    return 0 if theirs - ours else (ours - theirs).total()


def _identified(difference: Difference) -> bool:
    """Tell whether samples that differ are other samples: known by contents alone, they may be the same, augmented."""
    traces = difference.traces
    if all(trace.layout.settings.get("samples") == "identity" for trace in traces):
        return True
    ours, theirs = over_the_run(*difference.traces)
    if theirs and theirs <= ours:
        return True  # none is new, as augmentation or other padding makes them
    return bool(ours & theirs) and not of_other_length(difference) and not at_their_places(difference)


def _spread_over(difference: Difference, ours: list[int]) -> int:
    """Return how many steps of the other run hold the samples of the reference's step; 0 if they do not."""
    found: list[int] = []
    for count, row in enumerate(range(difference.row, len(difference.right.layout.steps)), 1):
        found += identities(difference.right, row)
        if len(found) >= len(ours):
            return count if Counter(found) == Counter(ours) else 0
    return 0


def at_their_places(difference: Difference) -> bool:
    """Tell whether the few samples that are common are so in the same steps, on all ranks: the others are changed.

    Of texts that one run cuts off those common are the short ones, which may be most, or all of a rank.
    """
    ours, theirs = over_the_run(*difference.traces)
    common, cut = ours & theirs, is_cut_off(difference)
    if 2 * len(common) >= min(len(ours), len(theirs)) and not cut:
        return False
    steps = len(difference.left.layout.steps)
    if steps > 1 and common and steps ** -len(common) > BY_CHANCE:
        return False  # the same few samples come in the same steps by chance
    for row in range(len(difference.left.layout.steps)):
        one, two = (common & set(identities(trace, row)) for trace in difference.traces)
        ranks = [set(seen) - {0} for seen in difference.right.arrays["rank/samples"][row].tolist()]
        if one != two or (not cut and any(seen and seen <= common for seen in ranks)):
            return False
    return True
