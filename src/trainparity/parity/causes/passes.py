"""Differences placed between what modules return and the gradients that come back through them."""

import torch

from trainparity.parity.causes.batchnorm import rows_per_pass
from trainparity.parity.causes.finding import Evidence, Finding, rule, some
from trainparity.parity.difference import Difference
from trainparity.parity.distance import ALL, distances
from trainparity.parity.fitting import fit
from trainparity.parity.margin import is_coarse
from trainparity.parity.recording.passes import INPUT, OUTPUT
from trainparity.parity.recording.trace import Trace
from trainparity.records.numbers import exact


def same_start(difference: Difference) -> bool:
    """Tell whether the step begins with the same weights, for the same samples, in one number format."""
    if difference.stage != "gradient" or not difference.same_precision or difference.beyond["start"]:
        return False
    hashes = difference.pair("samples")
    return hashes is not None and torch.equal(*hashes)


def same_cut(difference: Difference) -> bool:
    """Tell whether both runs hand the samples to the model in passes of the same sizes."""
    left, right = (rows_per_pass(trace, difference.row) for trace in (difference.left, difference.right))
    return left == right


def other_loss(difference: Difference, factor: float) -> bool:
    """Tell whether the loss differs by another factor than the gradient does: it is not scaled, but another.

    Near equal outputs, as a new model's, other losses have nearly multiples of one gradient: smoothed labels do.
    """
    values = difference.pair("rank/loss")
    if values is None or not all(value.isfinite().all() and value.mean() for value in values):
        return False
    return abs(float(values[1].mean() / values[0].mean()) / factor - 1) > _SAME_FACTOR


_SAME_FACTOR = 0.05
"""How far the factor of the loss may be from that of the gradient."""


def _outputs_agree(difference: Difference) -> bool:
    """Tell whether the model returns the same from the same start, and the gradient by what it returns is recorded."""
    chain = difference.chain
    given_back = chain.judged or set(chain.outputs) & set(chain.one_sided)
    return same_start(difference) and bool(chain.outputs_agree) and bool(given_back)


@rule(
    "forward",
    "forward",
    proof="weights and samples are equal, no random numbers explain it, and what the model returns is beyond the "
    "floor: another layer, another function in `forward`",
    advice="compare what both runs' forward computes in the named module, and between it and the one before",
)
def forward(difference: Difference) -> Finding | None:
    """The same weights and samples make other outputs."""
    chain, first = difference.chain, difference.first_activation
    hidden = first is None and bool(_hidden_by_rounding(difference))
    first = first or _hidden_by_rounding(difference)
    if not same_start(difference) or first is None or chain.other_inputs:
        return None
    if chain.outputs_agree and not hidden and not (same_cut(difference) and chain.touched):
        return None  # it reaches no output; or rows inside are no samples, and their sums depend on the cut
    if not float(difference.numbers("num_samples")[0]) and not same_cut(difference):
        return None  # sums over rows that no identity is known of
    if not chain.inside and max(float(drew.sum()) for drew in difference.pair("rank/drew") or (torch.zeros(1),)):
        return None  # compiled code draws other numbers from the same generator
    others = _other_modules(difference)
    agree = chain.names[: chain.names.index(str(first))]
    last = next((name for name in reversed(agree) if not name.startswith(INPUT)), "")
    named = f"the output of {first} ({difference.activation_kind()})"
    where = "what forward returns" if first.startswith(OUTPUT) else named
    how = f" though that of {last} before it agrees" if last else ""
    also = f"; {some(others)}" if others else ""
    if not same_cut(difference):
        also += "; the runs cut the batch differently, so a layer that mixes samples would show this too"
    return Finding(
        f"{where} differs in {difference.runs[1]} from {difference.runs[0]}{how}; weights and samples are equal{also}",
        {"first_output": str(first), "outputs_that_agree": len(agree), "other_modules": others, "equal": _EQUAL[:2]},
    )


def _hidden_by_rounding(difference: Difference) -> str | None:
    """Return where forward passes part in a coarse format, within its floor, though all before is equal to the bit."""
    start = float(distances(difference.left, difference.right, "start")[difference.row, -1])
    if start or not is_coarse(difference.left.layout) or not same_cut(difference):
        return None
    chain = difference.chain
    given = chain.factor if chain.judged else 1.0
    return chain.first_other_bits if abs(given - 1) < _EQUAL_FACTOR and not chain.given_otherwise else None


_EQUAL_FACTOR = 0.02
"""How far the gradient of the outputs may be from the reference's where the forward pass alone is another."""

_EQUAL = ["weights before the step", "samples", "outputs of the model"]


def _other_modules(difference: Difference) -> list[str]:
    """Name the modules that are of another class, or in one run only."""
    left, right = (trace.layout.modules for trace in (difference.left, difference.right))
    found = []
    for name in dict.fromkeys([*left, *right]):
        if name != "(model)" and left.get(name) != right.get(name):
            kinds = [
                f"{kinds.get(name, 'not there')} in {run}"
                for kinds, run in zip((left, right), difference.runs, strict=True)
            ]
            found.append(f"{name} is {kinds[0]} and {kinds[1]}")
    return found


@rule(
    "loss-or-targets",
    "loss",
    proof="weights, samples and all outputs of the model agree, and the gradient of the loss by them does not, "
    "not even up to one factor, or, in a coarse format, up to one that the loss itself does not differ by",
    advice="compare the targets (shifted, shuffled, encoded otherwise) and the loss function (softmax before a loss "
    "that has its own, reduction, weights, label smoothing)",
)
def loss_or_targets(difference: Difference) -> Finding | None:
    """The same outputs are given another gradient by the loss."""
    chain = difference.chain
    if not _outputs_agree(difference):
        return None
    off = [name for name in chain.judged if name in chain.backward]
    if difference.passes_part and not chain.touched:
        off += [name for name in chain.given_otherwise if name in chain.bent and name not in off]
    if is_coarse(difference.left.layout) and other_loss(difference, chain.factor) and not chain.touched:
        off += [name for name in chain.given_otherwise if name not in off]
    off += [name for name in chain.outputs if name in chain.one_sided]
    if not off:
        return None
    evidence: Evidence = {
        "outputs": off,
        "other_inputs": chain.other_inputs,
        "equal": _EQUAL,
        "outputs_that_agree": len(chain.names),
    }
    also = ""
    if not same_cut(difference):
        evidence["samples_of_each_pass"] = [
            str(rows_per_pass(trace, difference.row)) for trace in (difference.left, difference.right)
        ]
        also = (
            ", or each sample's loss depends on the others of its micro-batch, and the runs cut the batch differently"
        )
    if max(difference.numbers("judged_elsewhere")):
        evidence["judged_by_another_model"] = True
        also += ", or another model that the loss goes through"
    return Finding(
        f"the model returns the same for the same samples in both runs, and in {difference.runs[1]} the gradient of "
        f"the loss by it is another one: another loss function, or other targets{also}",
        evidence,
    )


@rule(
    "loss-or-targets",
    "loss",
    proof="outputs of the model agree, and the gradient of the loss by them, and the loss has another value: a term of "
    "it takes what lies inside of the model",
    advice="compare the terms of the loss that the model itself makes, or that take what parts of it return: auxiliary "
    "losses, a codebook's, an entropy, and their weights",
)
def other_value(difference: Difference) -> Finding | None:
    """A term of the loss that is made of inner activations weighs otherwise, or is another one."""
    chain, losses = difference.chain, difference.pair("rank/loss")
    if not _outputs_agree(difference) or set(chain.judged) & set(chain.backward) or losses is None:
        return None
    values = [float(loss.mean()) for loss in losses]
    if not any(values):
        return None
    noise = difference.noise("gradient") * (0.25 if is_coarse(difference.left.layout) else 4.0)
    apart = abs(values[1] - values[0]) / max(map(abs, values))
    if not apart > noise + 16 * difference.left.layout.stored_roundoff:
        return None
    off = [name for name in chain.backward if not name.startswith(INPUT)]
    return Finding(
        f"the model returns the same in both runs, and the loss is {exact(values[0])} in {difference.runs[0]} and "
        f"{exact(values[1])} in {difference.runs[1]}: a term of it takes what lies inside of the model"
        + (f", first what {off[-1]} returns" if off else ""),
        {"loss": values, "modules": off, "equal": [*_EQUAL, "gradients of the outputs"]},
    )


@rule(
    "backward",
    "backward",
    proof="outputs of the model agree, and the gradient of the loss by them, and a gradient that backward makes "
    "from there does not",
    advice="look for a detach, a hook on gradients or a custom autograd function between the named module and the next",
)
def backward(difference: Difference) -> Finding | None:
    """The same gradient of the outputs becomes another one on its way back."""
    chain = difference.chain
    if not _outputs_agree(difference):
        return None
    unused = [name for name in chain.one_sided if not chain.outputs or name in chain.outputs]
    if unused and not chain.outputs and _losses_agree(difference):
        return _cut_off(difference, unused)
    if set(chain.judged) & set(chain.backward) or unused:
        return None  # the loss makes less of what it is given
    off = [name for name in chain.backward if not name.startswith(INPUT)]
    own = own_gradients_agree(difference)
    if not off and own is not False:
        return _changed_later(difference)
    parameters = [name for name in difference.beyond["gradient"] if name != ALL]
    if off:
        where, advice = f"the gradient of the output of {off[-1]}", ""
    else:
        where = f"the gradient of {parameters[-1] if parameters else 'a parameter'}, though those of all outputs agree,"
        advice = "look for a term of the loss that takes the weights themselves, a hook on them, or a custom function"
    return Finding(
        f"{where} differs in {difference.runs[1]} from {difference.runs[0]}; the model returns the same, and the "
        "gradient of the loss by that agrees",
        {"modules": off, "parameters": parameters, "equal": [*_EQUAL, "gradients of the outputs"]},
        advice,
    )


def _losses_agree(difference: Difference) -> bool:
    """Tell whether the loss, made inside of the model, has the same value in both runs."""
    losses = difference.pair("rank/loss")
    return losses is not None and bool(losses[0].any()) and torch.allclose(*losses, rtol=1e-3)


def _cut_off(difference: Difference, modules: list[str]) -> Finding:
    """Tell of modules to which the loss, which has the same value, hands no gradient in one run."""
    left = difference.left
    sketch = left.arrays["activation_gradient/sketch"][difference.row][left.layout.activations.index(modules[-1])]
    return Finding(
        f"the loss has the same value in both runs, and in {difference.who(not sketch.any())} no gradient of it comes "
        f"back to {some(modules)}",
        {"modules": modules, "equal": _EQUAL},
        "look for a detach, or for no_grad, between the named modules and the loss",
    )


def _changed_later(difference: Difference) -> Finding | None:
    """Find gradients that are not what backward passes have made: something changes them before they are applied."""
    if max(difference.numbers("closure/again")):
        return None
    changed = [not adds_up(trace, difference.row) for trace in (difference.left, difference.right)]
    names = [name for name in difference.beyond["gradient"] if name != ALL]
    if changed[0] == changed[1] or not names:
        return None
    return Finding(
        f"in {difference.who(changed[0])} the gradient of {names[-1]} is changed after backward has made it; what "
        "backward makes agrees",
        {"parameters": names, "equal": [*_EQUAL, "gradients of the outputs", "what each backward pass adds"]},
        "look for hooks on parameters, and for code between backward and the update",
    )


def adds_up(trace: Trace, row: int) -> bool:
    """Tell whether the gradient is the mean over ranks of what their backward passes have made."""
    micro, total = trace.arrays["rank/micro"][row], trace.arrays["rank/total"][row][0]
    if not micro.any() or int(trace.arrays["rank/backwards"][row].amax()) > micro.shape[1]:
        return True  # not all of them were kept
    left_over = fit(micro.sum(1).mean(0), total)[1]
    return left_over <= max(1e-3, 16 * trace.layout.stored_roundoff)


def own_gradients_agree(difference: Difference) -> bool | None:
    """Tell whether what backward passes made, before ranks average it, adds up to the same; None if not recorded."""
    left, right = difference.micro()
    if not len(left) or not len(right):
        return None
    ours, theirs = left.sum(0), right.sum(0)
    return fit(ours, theirs)[1] <= max(difference.tolerance, 1e-5)
