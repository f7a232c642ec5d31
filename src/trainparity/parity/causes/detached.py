"""A gradient that flows from one pass of a model into another one in one run, and is detached in the other."""

import torch

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import (
    EQUAL,
    forward_passes,
    losses_agree,
    outputs_agree,
    passes_by_size,
    same_cut,
)
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import INPUT, OUTPUT, depends_on_cut
from trainparity.parity.steps.difference import Difference
from trainparity.records.numbers import counted

_BETWEEN_CALLS = "compare where both loops detach what one call of the model returns before they give it to the next"


@rule(
    "backward",
    "backward",
    proof="samples that pass through the model without gradients in one run, or through which no backward pass comes, "
    "take part in the gradient of the other",
    advice="put the detach or no_grad back around the pass whose output is a target",
)
def flows_through_targets(difference: Difference) -> Finding | None:
    """The gradient flows through a pass that makes targets, as a missing detach lets it."""
    reached = [int(number) for number in difference.numbers("rank/reached")]
    if difference.stage != "gradient" or reached[0] == reached[1]:
        return None
    more = reached[0] < reached[1]
    if not (_pass_aside_in(difference, more) or (more and _same_passes(difference))):
        return None
    return Finding(
        f"in {difference.who(not more)} the gradient flows through {max(reached)} forward passes of a step, and in "
        f"{difference.who(more)} through {min(reached)} of them",
        {"passes_with_gradients": [float(number) for number in reached]},
    )


@rule(
    "backward",
    "backward",
    proof="what the model is given takes a gradient in one run only, so that it is a part of the graph there and no "
    "sample",
    advice="compare where both loops detach what they make of one model's output and give to another part, or to it",
)
def inputs_take_gradients(difference: Difference) -> Finding | None:
    """A detach between two passes that is lost, or added: the second pass's input is made of the first one's output."""
    whole = [
        {name for name in trace.layout.activations if name.startswith(INPUT) and depends_on_cut(name)}
        for trace in difference.traces
    ]
    counts = difference.numbers("num_samples")
    if difference.stage != "gradient" or whole[0] == whole[1] or not all(counts) or counts[0] == counts[1]:
        return None
    in_left = counts[0] < counts[1]
    fewer, more = passes_by_size(difference)[:: 1 if in_left else -1]
    if not whole[not in_left] > whole[in_left] or fewer - more:  # those in which it takes one are gone, no others
        return None
    return Finding(
        f"what the model is given takes a gradient in {difference.who(in_left)}, and none in "
        f"{difference.who(not in_left)}, in passes of {abs(counts[0] - counts[1]):g} samples",
        {"samples": [*counts]},
    )


def _given_without_gradient(difference: Difference) -> bool:
    """Tell whether one run alone gives what the model has returned to it again as samples, for a loss of one value."""
    backwards, calls = difference.numbers("rank/backwards"), _calls_on_outputs(difference)
    if not all(backwards) or not max(calls) or not losses_agree(difference):
        return False
    first = _first_calls(difference)
    left, right = (count / number for count, number in zip(first, backwards, strict=True))
    return left != right and left + calls[0] == right + calls[1]


def _hidden_by_the_floor(difference: Difference) -> bool:
    """Tell whether a coarse format's margin hides that, though gradients are further apart than right ones mostly are.

    A detached tensor that one run alone copies is a sample in that run, too: gradients agree then.
    """
    further = difference.distance("gradient") > _FURTHER * difference.noise("gradient")
    return is_coarse(difference.left.layout) and further and _given_without_gradient(difference)


_FURTHER = 2
"""Floors that gradients are apart by in such a case; 2.5 at least were seen, of 2.8 % of them."""


@rule(
    "backward",
    "backward",
    proof="the loss has the same value, and the model is called as often on what it has returned, without a gradient "
    "to the call before in one run: what it is given there is a sample",
    advice=_BETWEEN_CALLS,
    differs=_hidden_by_the_floor,
)
def detached_between_calls(difference: Difference) -> Finding | None:
    """A detach between two calls of one model that is lost, or added, of which the second is given what it returned."""
    hidden = difference.stage != "gradient"
    if not (_hidden_by_the_floor(difference) if hidden else _given_without_gradient(difference)):
        return None
    first, calls = _first_calls(difference), _calls_on_outputs(difference)
    in_left = calls[0] > calls[1]
    return Finding(
        f"for one loss {difference.who(not in_left)} gives what the model has returned to "
        f"{counted(abs(calls[0] - calls[1]), 'further call')} of it without a gradient, and "
        f"{difference.who(in_left)} with one",
        {"calls": [float(number) for number in calls], "first_calls": [float(number) for number in first]},
    )


@rule(
    "backward",
    "backward",
    proof="the loss has the same value, and the model is called less often on what it has returned in the run that "
    "alone passes something without gradients",
    advice="compare where both loops make a pass under no_grad, or detach what it returns",
)
def passed_without_gradients(difference: Difference) -> Finding | None:
    """The calls of a model that make a target, or the input of its last call, without gradients or with them."""
    calls, aside = _calls_on_outputs(difference), difference.numbers("aside")
    if difference.stage != "gradient" or calls[0] == calls[1] or not losses_agree(difference):
        return None
    fewer = int(calls[0] > calls[1])
    if not aside[fewer] or aside[1 - fewer]:
        return None
    more = abs(calls[0] - calls[1])
    return Finding(
        f"for one loss {difference.who(not fewer)} passes without gradients what {difference.who(bool(fewer))} makes "
        f"with them, by {counted(more, 'further call')} of the model",
        {"calls": [float(number) for number in calls]},
    )


@rule(
    "backward",
    "backward",
    proof="the model is called as often on what it has returned, all outputs agree and the value of the loss, and the "
    "gradient by the outputs does not",
    advice=_BETWEEN_CALLS,
)
def stopped_between_calls(difference: Difference) -> Finding | None:
    """The same where what the detached tensor was made by is known: as many samples are seen."""
    chain, calls = difference.chain, _calls_on_outputs(difference)
    if not outputs_agree(difference) or calls[0] != calls[1] or not calls[0] or OUTPUT not in chain.backward:
        return None
    if any(OUTPUT in trace.layout.outputs for trace in difference.traces) or not losses_agree(difference):
        return None
    return Finding(
        f"for one loss the model is called {counted(calls[0], 'time')} on what it has returned, its value agrees, and "
        f"another gradient comes back to its outputs in {difference.runs[1]} than in {difference.runs[0]}",
        {"calls": [float(number) for number in calls], "equal": [*EQUAL, "the loss"]},
    )


def _first_calls(difference: Difference) -> tuple[int, int]:
    """Return how many passes with samples of their own both runs make in a step."""
    left, right = (int(forward_passes(trace, difference.row).sum()) for trace in difference.traces)
    return left, right


def _calls_on_outputs(difference: Difference) -> tuple[int, int]:
    """Return how often both runs call the model on what it has returned before, for one loss."""
    left, right = (trace.layout.calls.get(OUTPUT, 0) for trace in difference.traces)
    return left, right


def _pass_aside_in(difference: Difference, in_left: bool) -> bool:
    """Tell whether what one run lets pass without gradients are just the samples that the other has more of.

    In this step or a later one: what passes before the first training pass is not seen.
    """
    rows = slice(difference.row, min(len(trace.layout.steps) for trace in difference.traces))
    ours, theirs = (trace.arrays["samples"][rows] for trace in difference.traces)
    without = [trace.arrays["aside"][rows] for trace in difference.traces]
    moved = (ours != theirs) & (ours + without[0] == theirs + without[1])
    counts = difference.numbers("num_samples")
    return bool(moved.any()) and (counts[0] < counts[1]) == in_left


def _same_passes(difference: Difference) -> bool:
    """Tell whether the same samples pass with gradients switched on, and as many backward passes begin."""
    backwards = difference.numbers("rank/backwards")
    hashes = difference.pair("samples")
    return hashes is not None and torch.equal(*hashes) and same_cut(difference) and backwards[0] == backwards[1]
