"""Weights that the step starts from."""

import torch

from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.modes import moved_by_their_mode
from trainparity.parity.causes.parted_starts import (
    another_base,
    changed_in_one_run,
    moved_between_steps,
    moved_since,
    plainly_other,
)
from trainparity.parity.causes.precision import stored_alike
from trainparity.parity.noise.distance import ALL
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some


def _other_start(difference: Difference) -> bool:
    return another_base(difference) or bool(plainly_other(difference))


@rule(
    "weights-not-loaded",
    "start",
    proof="the step starts from other weights, though the step before ended with equal ones; or a parameter is tied "
    "in one run only",
    advice="load the same checkpoint (or seed) into every parameter and tie the same ones before training",
    differs=_other_start,
)
def weights_not_loaded(difference: Difference) -> Finding | None:
    """The weights that the step starts from are other weights, though the step before ended with equal ones."""
    left, right = difference.left, difference.right
    # Another optimizer may have made its step before this one's begins.
    of_another = difference.named(torch.logical_xor(*difference.at("held")))
    explained = {ALL, *of_another, *moved_by_their_mode(difference).values()}
    moved = moved_between_steps(difference)
    names = [n for n in difference.beyond["start"] if n not in explained and n in moved]
    made_otherwise = plainly_other(difference)
    names = names or made_otherwise
    untied = {name: name in left.layout.tied for name in set(left.layout.tied) ^ set(right.layout.tied)}
    if not untied and not made_otherwise and (not names or stored_alike(difference)):
        return None
    row, steps = difference.row, left.layout.steps
    if row > 0 and not untied and steps[row] - steps[row - 1] > 1:
        return None  # they drifted apart in steps that were not traced
    total = len(left.layout.parameters)
    evidence: Evidence = {
        "parameters": names,
        "distance": difference.distance("start"),
        "of_all_parameters": len(names) / total,
    }
    if untied:
        evidence["tied_in_one_run_only"] = sorted(untied)
        what = f"{some(sorted(untied))} is tied in {difference.who(untied[min(untied)])} only"
    else:
        what = f"{some(names)} start from other values"
    when = "from the start" if row == 0 else f"from step {steps[row]} on, though step {steps[row - 1]} left them equal"
    if row == 0 and not untied and not made_otherwise and difference.chain.outputs_agree:
        hidden = bool((left.arrays["start/sketch"][row] == 0).all(1).any())  # as LoRA's second factor hides the first
        why = (
            "the loop has changed them, or weights of zero behind them hide it"
            if hidden
            else "the loop has changed them"
        )
        when = f"where the first update begins, though what the model returned before agrees: {why}"
    return Finding(f"{len(names)} of {total} parameters differ {when}: {what}", evidence)


@rule(
    "weights-not-loaded",
    "start",
    proof="frozen parameters that both loops write between two steps, as an average of weights, begin a step with "
    "other values, and the step before ended with equal ones",
    advice="compare how they are updated: the momentum of an average, how often, and from which weights",
)
def averaged_otherwise(difference: Difference) -> Finding | None:
    """The weights of a teacher or a target network, which the loop updates by itself, and otherwise."""
    row, steps = difference.row, difference.left.layout.steps
    if row == 0 or steps[row] != steps[row - 1] + 1:
        return None
    frozen = torch.logical_and(*difference.at("frozen")) & ~torch.logical_or(*difference.at("held"))
    for trace in difference.traces:
        frozen = frozen & (moved_since(trace, row) != 0)
    names = [name for name in difference.beyond["start"] if name != ALL]
    if not names or not set(names) <= set(difference.named(frozen)):
        return None
    return Finding(
        f"{some(names)}: frozen, and in both runs written between step {steps[row - 1]} and step {difference.step}, "
        f"with other values in {difference.runs[1]}",
        {"parameters": names, "distance": difference.distance("start")},
    )


def _moved_in_one_run(difference: Difference) -> bool:
    return bool(changed_in_one_run(difference)[1])


@rule(
    "weights-not-loaded",
    "start",
    proof="the loop moves weights and passes the samples again, and the update begins from other weights, though what "
    "the model returned before was equal",
    advice="move weights back to where the step began before the optimizer updates them, as SAM does",
)
def not_moved_back(difference: Difference) -> Finding | None:
    """The loop moves weights to look at the loss elsewhere, and one run forgets to move them back."""
    names = [name for name in difference.beyond["start"] if name != ALL]
    moves = [bool(trace.arrays["closure/again"][difference.row]) for trace in difference.traces]
    if not names or not all(moves) or not difference.chain.outputs_agree:
        return None
    total = len(difference.left.layout.parameters)
    return Finding(
        f"both runs pass the samples again with weights that the loop has moved, and then update {len(names)} of "
        f"{total} parameters from other values: {some(names)}",
        {"parameters": names, "distance": difference.distance("start")},
    )


@rule(
    "weights-not-loaded",
    "start",
    proof="weights change between two steps in one run only",
    advice="look for code that writes into weights outside of the optimizer: an average that is copied back, a decay "
    "or a clipping of weights by hand, a checkpoint that is loaded",
    differs=_moved_in_one_run,
)
def changed_between_steps(difference: Difference) -> Finding | None:
    """The loop itself changes weights between two steps, in one run only: seen exactly, whatever the floor is."""
    who, found = changed_in_one_run(difference)
    if not found:
        return None
    names, before = list(found), difference.left.layout.steps[difference.row - 1]
    return Finding(
        f"in {who} {len(names)} of {len(difference.left.layout.parameters)} parameters change "
        f"between step {before} and step {difference.step}, in the other run none does so: {some(names)}",
        {"parameters": names, "by": max(found.values())},
    )
