"""The same weights and samples make other outputs."""

import torch

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import (
    EQUAL,
    forward_passes,
    only_inside,
    parameters_beyond,
    ranks_hold_apart,
    same_cut,
    same_start,
)
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import GIVEN, INPUT, MODEL, OUTPUT, depends_on_cut, made
from trainparity.parity.steps.carried import carried_on
from trainparity.parity.steps.comparable_rows import called_otherwise
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.hidden_passes import further_on, scaled_and_back
from trainparity.parity.steps.other_arithmetic import OTHER_ARITHMETIC
from trainparity.parity.steps.sketch_pairs import Pairs
from trainparity.records.names import some


@rule(
    "forward",
    "forward",
    proof="weights and samples are equal, random numbers are drawn from equal states, if at all, and what the model "
    "returns is beyond the floor: another layer, another function in `forward`",
    advice="compare what both runs' forward computes in the named module, and between it and the one before",
)
def forward(difference: Difference) -> Finding | None:
    """The same weights and samples make other outputs."""
    chain, first = difference.chain, difference.first_activation
    within = _hidden_by_rounding(difference) or _hidden_by_the_cut(difference)
    hidden = first is None and within is not None
    first = first or within
    if not same_start(difference) or first is None or chain.other_inputs or carried_on(difference, first):
        return None
    reaches = same_cut(difference) and (chain.touched or difference.passes_part)
    if chain.outputs_agree and not hidden and not reaches:
        return None  # it reaches no output; or rows inside are no samples, and their sums depend on the cut
    if not float(difference.numbers("num_samples")[0]) and not same_cut(difference):
        return None  # sums over rows that no identity is known of
    if ranks_hold_apart(difference, first):
        return None  # only the first rank's weights are known where a step begins
    if not chain.inside and max(float(drew.sum()) for drew in difference.pair("rank/drew") or (torch.zeros(1),)):
        return None  # compiled code draws other numbers from the same generator
    others = _other_modules(difference)
    agree = chain.names[: chain.names.index(str(first))]
    last = next((name for name in reversed(agree) if not name.startswith(INPUT)), "")
    where = "what forward returns" if first.startswith(OUTPUT) else _named(difference, first)
    how = f" though that of {last} before it agrees" if last else ""
    also = f"; {some(others)}" if others else ""
    if all(difference.numbers("rank/drew")):
        also += "; random numbers are drawn there from equal states, and may be used otherwise, or fill a tensor of "
        also += "another shape or memory format in another order"
    if not same_cut(difference):
        also += "; the runs cut the batch differently, so a layer that mixes samples would show this too"
    return Finding(
        f"{where} differs in {difference.runs[1]} from {difference.runs[0]}{how}; weights and samples are equal{also}",
        {"first_output": str(first), "outputs_that_agree": len(agree), "other_modules": others, "equal": EQUAL[:2]},
    )


@rule(
    "forward",
    "forward",
    proof="outputs of the model and the gradient of the loss by them agree, the runs cut the batch alike, and what a "
    "module inside returns is beyond the floor: what is made of it is too small to show in the outputs, but in their "
    "bits",
    advice="compare what both runs' forward computes in the named module, and between it and the one before",
)
def hidden_inside(difference: Difference) -> Finding | None:
    """A module makes something else, which a small scale behind it hides in what the model returns."""
    chain, first = difference.chain, difference.first_activation
    if not only_inside(difference) or not set(chain.judged) & set(chain.other_bits):
        return None  # it reaches no output
    if first is None or chain.other_inputs or not same_cut(difference) or carried_on(difference, first):
        return None
    if ranks_hold_apart(difference, first):
        return None
    return Finding(
        f"{_named(difference, first)} differs in {difference.runs[1]} from {difference.runs[0]}; what is made of it "
        "is so small that the outputs of the model agree, and its gradient shows it; weights and samples are equal",
        {"first_output": first, "parameters": parameters_beyond(difference), "equal": EQUAL},
    )


@rule(
    "forward",
    "forward",
    proof="what spectral normalisation keeps of its power iterations differs, and one run makes more forward passes, "
    "of which each iterates once",
    advice="compare runs with as many forward passes in training mode, or normalise by the whole spectrum: "
    "torch.linalg.matrix_norm(weight, 2)",
)
def power_iterations(difference: Difference) -> Finding | None:
    """Spectral normalisation divides by another estimate of the norm where it has iterated more often."""
    names = [
        name for name in difference.beyond["buffer"]
        if "SpectralNorm" in difference.kind_of(name.rpartition(".")[0]) or name.endswith(("weight_u", "weight_v"))
    ]  # fmt: skip
    passes = [int(forward_passes(trace, difference.row).amax()) for trace in difference.traces]
    if not names or passes[0] == passes[1] or not same_start(difference):
        return None
    return Finding(
        f"spectral normalisation iterates once in each forward pass, of which there are {passes[0]} in "
        f"{difference.runs[0]} and {passes[1]} in {difference.runs[1]}: it divides by other norms ({some(names)})",
        {"forward_passes": [float(count) for count in passes], "buffers": names},
    )


def _named(difference: Difference, activation: str) -> str:
    """Say what an activation is: what a module returns, or is given."""
    module, given, _ = activation.partition(GIVEN)
    kind = difference.kind_of(activation)
    return f"what {module} is given" if given else f"the output of {activation}{f' ({kind})' if kind else ''}"


def _hidden_by_rounding(difference: Difference) -> str | None:
    """Return where forward passes part in a coarse format, within its floor, though all before is equal to the bit."""
    if difference.distance("start") or not is_coarse(difference.left.layout) or not same_cut(difference):
        return None
    chain = difference.chain
    given = chain.factor if chain.judged else 1.0
    agree = abs(given - 1) < _EQUAL_FACTOR and not chain.given_otherwise
    return chain.first_other_bits if agree or scaled_and_back(difference) else None


def _hidden_by_the_cut(difference: Difference) -> str | None:
    """Return where forward passes part in a coarse format, within its margin, where the batch is cut otherwise.

    There the first steps' outputs of each sample are nearly the same; twins are further apart.
    """
    chain = difference.chain
    if difference.distance("start") or not is_coarse(difference.left.layout) or same_cut(difference):
        return None
    if further := further_on(difference):
        return further[0]
    if not chain.touched or chain.given_otherwise or not difference.floor.calibrated:
        return None
    names = [name for name in made(chain.names) if not depends_on_cut(name)]
    return next(iter(Pairs(difference, "activation", chain.names).beyond(names, 1.0, OTHER_ARITHMETIC)), None)


_EQUAL_FACTOR = 0.02
"""How far the gradient of the outputs may be from the reference's where the forward pass alone is another."""


def _other_modules(difference: Difference) -> list[str]:
    """Name the modules that are of another class, or in one run only."""
    left, right = (trace.layout.modules for trace in difference.traces)
    found = []
    for name in dict.fromkeys([*left, *right]):
        if name != MODEL and left.get(name) != right.get(name):
            kinds = [
                f"{kinds.get(name, 'not there')} in {run}"
                for kinds, run in zip((left, right), difference.runs, strict=True)
            ]
            found.append(f"{name} is {kinds[0]} and {kinds[1]}")
    return found


@rule(
    "forward",
    "forward",
    proof="weights, samples and their cut are equal, the gradient differs, and the loop calls the model, or parts of "
    "it, another number of times for one loss, each time with what the last one made",
    advice="call them as often in both runs for a batch: other steps of a solver, a sampler or a recurrence compute "
    "something else",
)
def called_another_number_of_times(difference: Difference) -> Finding | None:
    """The loop makes what goes into the loss by more calls of the model, or fewer: each goes on from the last one."""
    names = [name for name in difference.left.layout.calls if name in called_otherwise(difference)]
    if difference.stage != "gradient" or not names or not same_start(difference) or not same_cut(difference):
        return None
    what = "the model" if names[-1] == OUTPUT else names[-1]
    first = names[-1] == OUTPUT  # on no output of its own
    calls = [float(trace.layout.calls[names[-1]] + first) for trace in difference.traces]
    return Finding(
        f"for one loss the loop calls {what} {calls[1]:g} times in {difference.runs[1]}, and {calls[0]:g} times in "
        f"{difference.runs[0]}",
        {"calls": calls, "equal": EQUAL[:2]},
    )
