"""The same outputs are given another gradient, or another value, by the loss."""

from trainparity.parity.causes.backward import inner_factors
from trainparity.parity.causes.batchnorm import rows_per_pass
from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.passes import (
    EQUAL,
    other_loss,
    other_losses,
    outputs_agree,
    ranks_hold_apart,
    same_cut,
    without_gradient,
)
from trainparity.parity.noise.distance import sketches
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import made
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import fit
from trainparity.parity.steps.hidden_passes import given_otherwise
from trainparity.parity.steps.other_losses import other_loss_beside
from trainparity.records.names import some
from trainparity.records.numbers import exact


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
    if not outputs_agree(difference):
        return None
    given = given_otherwise(difference)
    off = [name for name in chain.judged if name in chain.backward]
    if difference.passes_part and not chain.touched:
        off += [name for name in given if name in chain.bent and name not in off]
    if is_coarse(difference.left.layout) and other_loss(difference, chain.factor) and not chain.touched:
        off += [name for name in given if name not in off]
    if not chain.backward and not is_coarse(difference.left.layout):  # one factor at the outputs, and others behind
        off += [name for name in given if name not in off]
    if difference.other_loss_of_same_bits:
        off += [name for name in chain.judged if name in chain.given_more_than_stored and name not in off]
    unreached = [name for name in chain.outputs if name in chain.one_sided]
    off += unreached
    if not off:
        return None
    evidence: Evidence = {
        "outputs": off,
        "other_inputs": chain.other_inputs,
        "equal": EQUAL,
        "outputs_that_agree": len(chain.names),
    }
    if term := _one_term(difference):
        factor, weighed, others = term
        return Finding(
            "the model returns the same for the same samples in both runs, and the gradient of the loss by "
            f"{some(weighed)} is {exact(factor, 4)} times in {difference.runs[1]} what it is in {difference.runs[0]}, "
            f"and that by {some(others)} agrees: a term of the loss weighs otherwise",
            evidence | {"outputs": weighed, "factor": factor},
        )
    also = ""
    if not same_cut(difference):
        evidence["samples_of_each_pass"] = [str(rows_per_pass(trace, difference.row)) for trace in difference.traces]
        also = (
            ", or micro-batches weigh otherwise, as in a mean of means, or each sample's loss depends on the others of "
            "its micro-batch, and the runs cut the batch differently"
        )
    if unreached:
        where = without_gradient(difference, unreached[-1])
        also += f"; in {where} no gradient comes back to {some(unreached)}, as behind a detach"
    if max(difference.numbers("judged_elsewhere")):
        evidence["judged_by_another_model"] = True
        also += ", or another model that the loss goes through"
    what, other = "the model returns the same", "another loss function"
    if not set(off) & {name for trace in difference.traces for name in trace.layout.outputs}:  # it makes the loss
        what, other = f"what {some(off)} returns is the same", "other code behind that, another loss function"
    return Finding(
        f"{what} for the same samples in both runs, and in {difference.runs[1]} the gradient of the loss by it is "
        f"another one: {other}, or other targets{also}",
        evidence,
    )


def _one_term(difference: Difference) -> tuple[float, list[str], list[str]] | None:
    """Return by what number some outputs' gradients are multiplied, where those of others agree: a term's weight."""
    tolerance = max(_TERM_LEFT_OVER, 4 * max(trace.layout.unit_roundoff for trace in difference.traces))
    found = {}
    for name in difference.chain.judged:
        factor, left_over = fit(*(
            sketches(trace, "activation_gradient")[difference.row, trace.layout.activations.index(name)]
            for trace in difference.traces
        ))  # fmt: skip
        if left_over > tolerance:
            return None
        found[name] = factor
    weighed = [name for name, factor in found.items() if abs(factor - 1) > tolerance]
    others = [name for name in found if name not in weighed]
    if not weighed or not others or any(abs(found[name] - found[weighed[0]]) > tolerance for name in weighed):
        return None
    return found[weighed[0]], weighed, others


_TERM_LEFT_OVER = 1e-3
"""Part of a term's gradient that may be left over where one number explains it."""


@rule(
    "loss-or-targets",
    "loss",
    proof="the model returns the same, one run compiles it together with its loss, whose gradient by that is not seen, "
    "and the loss has another value, by more than twins' losses differ",
    advice="compare the loss that the model itself makes: label smoothing, weights of its terms, its reduction",
)
def other_value_compiled(difference: Difference) -> Finding | None:
    """A loss made inside of what one run compiles has another value, and nothing else shows it."""
    if not other_loss_beside(difference):
        return None
    values = [float(loss.mean()) for loss in difference.at("rank/loss")]
    floor = exact(float(difference.floor.losses[difference.row]), 2)
    return Finding(
        f"the model returns the same in both runs, and the loss that it makes of that is {exact(values[0], 6)} in "
        f"{difference.runs[0]} and {exact(values[1], 6)} in {difference.runs[1]}, where twins' differ by {floor} of it "
        "at most: another loss function, other targets, or a term of it weighs otherwise",
        {"loss": values, "equal": EQUAL},
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
    if not outputs_agree(difference) or set(chain.judged) & set(chain.backward) or losses is None:
        return None
    values = [float(loss.mean()) for loss in losses]
    if not any(values) or (chain.given_otherwise and not other_loss(difference, chain.factor)):
        return None
    noise = difference.noise("gradient") * (0.25 if is_coarse(difference.left.layout) else 4.0)
    apart = abs(values[1] - values[0]) / max(map(abs, values))
    beyond = apart > noise + 16 * max(difference.left.layout.stored().values())
    of_same_bits = (difference.passes_part and difference.other_loss_of_same_bits) or bool(inner_factors(difference))
    if not (beyond or (of_same_bits and other_losses(difference))):
        return None
    if any(ranks_hold_apart(difference, name) for name in chain.other_bits):
        return None  # only the first rank's weights are known where a step begins
    off = made(chain.backward)
    inside = "a term of it takes what lies inside of the model"
    hidden = is_coarse(difference.left.layout) and not chain.given_same_bits
    if hidden or set(chain.judged) & set(chain.bent):  # within the margin of a coarse format
        inside = f"another loss function, or {inside}"
    elif max(difference.numbers("made_elsewhere")) or not difference.floor.same_samples:
        inside = f"other targets, or another loss, of what models make for it, or {inside}"
    return Finding(
        f"the model returns the same in both runs, and the loss is {exact(values[0])} in {difference.runs[0]} and "
        f"{exact(values[1])} in {difference.runs[1]}: {inside}, or its weights"
        + (f", first what {off[-1]} returns" if off else ""),
        {"loss": values, "modules": off, "equal": [*EQUAL, "gradients of the outputs"]},
    )
