"""Random numbers drawn in the forward pass."""

import torch

from trainparity.parity.causes.batchnorm import rows_per_pass
from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.passes import EQUAL, one_passes_more_aside, only_inside, same_cut
from trainparity.parity.recording.names import INPUT, inside, module_of
from trainparity.parity.steps.difference import Difference


@rule(
    "randomness",
    "forward",
    proof="the forward pass drew random numbers, from another state, for other micro-batches or in code that one run "
    "alone compiles; or passes that do not train draw some, in one run only; or the same samples reach the model with "
    "other values",
    advice="turn dropout off for the comparison, or draw it as a function of seed, epoch and sample",
)
def randomness(difference: Difference) -> Finding | None:
    """The forward pass drew random numbers, and other ones: dropout, noise, augmentation."""
    drew, states = difference.pair("rank/drew"), difference.pair("rank/random_state")
    first = difference.first_activation
    if difference.stage != "gradient" or drew is None or states is None:
        return None
    if first is None:
        return _drawn_aside(difference) or _hidden_inside(difference)
    rows = [rows_per_pass(trace, difference.row) for trace in difference.traces]
    evidence: Evidence = {
        "first_activation": first,
        "passes_that_drew": [float(d.sum()) for d in drew],
        "samples_of_each_pass": [str(r) for r in rows],
    }
    if any(d.any() for d in drew):
        common = min(map(len, states))  # ranks, which each have a generator
        same_state = torch.equal(*(state[:common] for state in states))
        dropped = "Dropout" in difference.activation_kind() and module_of(first) in difference.left.layout.modal
        both_drew, compiled = bool(drew[0].any()) == bool(drew[1].any()), _one_is_compiled(difference)
        if same_state and rows[0] == rows[1] and both_drew and not dropped and not compiled:
            return None  # equal masks: something else is off
        evidence["same_generator_state"] = same_state
        evidence["ranks_share_a_state"] = bool(len(states[1]) > 1 and (states[1] == states[1][0]).all())
        shared = evidence["ranks_share_a_state"]
        what = "all ranks draw the same random numbers" if shared else "the forward pass draws other random numbers"
        advice = "seed each rank apart, and " if shared else ""
        if not both_drew:
            what = f"the forward pass draws random numbers in {difference.who(bool(drew[0].any()))} alone"
        if compiled and same_state:
            what += " where it is compiled, from the same state of the generator"
            advice = "let compiled code draw as eager code does (torch._inductor.config.fallback_random = True), or "
        return Finding(
            f"{what}; the first output that differs is {first}'s",
            evidence,
            advice=f"{advice}turn dropout off for the comparison, or draw it as a function of seed, epoch and sample",
        )
    identified = all(t.layout.settings.get("samples") == "identity" for t in difference.traces)
    if first == INPUT and identified:
        return Finding(
            "the same samples reach the model with other values: augmentation or noise was drawn otherwise",
            evidence,
            advice="draw noise and augmentation as a function of seed, epoch and sample",
        )
    return None


def _drawn_aside(difference: Difference) -> Finding | None:
    """Tell of passes that one run alone makes beside those that train, and that move the generator for these."""
    drew = difference.numbers("rank/drew")
    if drew[0] == drew[1] or not all(drew) or difference.beyond["start"] or not one_passes_more_aside(difference):
        return None
    return Finding(
        f"random numbers are drawn in {drew[1]:g} forward passes of step {difference.step} in {difference.runs[1]} and "
        f"in {drew[0]:g} in {difference.runs[0]}: those that do not train move the generator for those that do",
        {"passes_that_drew": [*drew]},
        advice="pass samples that do not train in evaluation mode, or under torch.random.fork_rng()",
    )


def _hidden_inside(difference: Difference) -> Finding | None:
    """Tell of draws in passes of another cut, which a small scale hides in what modules return, not on the way back."""
    chain = difference.chain
    if not all(difference.numbers("rank/drew")) or same_cut(difference) or not only_inside(difference):
        return None
    if not chain.reached or not chain.backward or not _drops(difference):
        return None
    return Finding(
        "the forward pass draws random numbers, for other micro-batches; what they change is so small in the outputs "
        f"of the model that these agree, and the gradient of the output of {chain.backward[-1]} shows it",
        {"modules": chain.backward, "equal": EQUAL},
    )


def _drops(difference: Difference) -> bool:
    """Tell whether a module is there to draw, by its class: a number that is drawn for a log makes no difference."""
    kinds = (kind.lower() for kind in difference.left.layout.modules.values())
    return any(word in kind for kind in kinds for word in ("drop", "stochastic", "noise"))


def _one_is_compiled(difference: Difference) -> bool:
    """Tell whether the modules inside of the model are seen in one run alone: in the other they are compiled."""
    seen = [bool(inside(trace.layout.activations)) for trace in difference.traces]
    return seen[0] != seen[1]
