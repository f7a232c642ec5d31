"""Losses of what a model returns alike that have another value: of others, or with another term."""

from collections.abc import Collection

import torch

from trainparity.parity.recording.names import OUTPUT, inside
from trainparity.parity.steps.chain import REROUNDED, is_blind_in_one
from trainparity.parity.steps.chained_step import ChainedStep
from trainparity.parity.steps.comparable_rows import passed_alike
from trainparity.parity.steps.identities import identities
from trainparity.parity.steps.sketch_pairs import Pairs


def other_loss_of_same_bits(step: ChainedStep) -> bool:
    """Tell whether the loss of modules that return the same bits has another value, and its gradient differs.

    Where the outputs' gradient has the same bits too, a term of the loss takes what lies inside of the model, as an
    auxiliary loss. The value alone proves nothing: a constant in it has no gradient, and what is computed in another
    form, as an embedding by a product, may round beside it.
    """
    chain, apart = step.chain, _loss_apart(step)
    if not chain.judged or not apart:
        return False
    if not chain.given_same_bits:
        more = bool(set(chain.judged) & set(chain.given_more_than_stored))
        carried = chain.given_carried and not reaches_no_weight(step, chain.judged)
        return apart > OTHER_VALUE and more and carried
    return apart > _OTHER_TERM and _more_than_another_form(step)


def other_loss_beside(step: ChainedStep) -> bool:
    """Tell whether a loss that one run compiles with its model, and shows no gradient of, has another value.

    Of equal weights, further than twins' losses, which start from moved ones: compiled models made it 1 % as far. Of
    others plainly further, once several steps have shown theirs. One that is a plain multiple, and that no gradient
    shows, is taken out of these again.
    """
    chain, apart = step.chain, _losses_apart(step)
    if chain.judged or not is_blind_in_one(step) or not chain.outputs_agree or chain.touched:
        return False
    parted = step.distance("start") > 0
    if parted and step.row < _SHOWN:
        return False
    times = _FURTHER if parted else 1.0
    return max(_OTHER_TERM, times * float(step.floor.losses[step.row])) < apart < _TAKEN_OUT


def other_loss_of_other_values(step: ChainedStep) -> bool:
    """Tell whether samples that all have other values, as images of another brightness, have another loss.

    By their contents they line up no longer, and gradients of a coarse format hide a few percent. A model that prepares
    its samples itself, or takes those that are padded otherwise, has the same loss. Of twins few are there: beside them
    one rounding of the mean over a handful of samples is excused.
    """
    counts, by_content = step.pair("num_samples"), (trace.layout.settings.get("samples") for trace in step.traces)
    if counts is None or not torch.equal(*counts) or "identity" in by_content or max(step.numbers("made_elsewhere")):
        return False
    ours, theirs = (set(identities(trace, step.row)) for trace in step.traces)
    excused = max(float(step.floor.losses[step.row]), step.left.layout.unit_roundoff / _A_HANDFUL)
    return bool(ours) and not ours & theirs and _losses_apart(step) > step.margin * excused


_A_HANDFUL = 16
"""Times that the mean loss of a batch is rounded less than one number is: the root of 256 samples."""


def _loss_apart(step: ChainedStep) -> float:
    """Return by which part of it the loss of modules that return the same bits has another value; 0: it is unknown."""
    return _losses_apart(step) if step.chain.loss_is_exact else 0.0


def _losses_apart(step: ChainedStep) -> float:
    """Return by which part of it the loss has another value; 0: it was not recorded."""
    losses = step.pair("rank/loss")
    if losses is None:
        return 0.0
    ours, theirs = (float(loss.mean()) for loss in losses)
    return abs(theirs - ours) / max(abs(ours), abs(theirs), _NO_LOSS)


def of_one_term(step: ChainedStep, off: Collection[str]) -> bool:
    """Tell whether the loss has another value, and all but what is `off` gets a gradient of the same bits.

    Another form of the loss would change what the other outputs get.
    """
    rest = set(step.chain.judged) - set(off)
    same = bool(rest) and not rest & set(step.chain.given_other_bits)
    return same and _loss_apart(step) > OTHER_VALUE


def _more_than_another_form(step: ChainedStep) -> bool:
    """Tell whether a parameter's gradient differs by more than another form of what backward computes would make it.

    Or is there in one run only, as of a layer that nothing but a penalty on weights reaches.
    """
    unit, row, norms = step.left.layout.unit_roundoff, step.row, step.norms("gradient")
    excused = step.floor["gradient"][row].clamp(min=REROUNDED * unit)
    if passed_alike(step):
        excused = torch.full_like(excused, REROUNDED * unit)
        if len(inside(step.chain.given_back)) >= _SEVERAL and not step.chain.given_other_bits:
            excused *= 0  # the same products make gradients of weights, but for what is added to these
    return bool((step.distances("gradient")[row] > excused).any() or ((norms[0] > 0) ^ (norms[1] > 0)).any())


_SEVERAL = 2
"""Modules inside of the model that must show that a backward pass is the same."""

_NO_LOSS = 1e-30
"""What stands below a loss of zero."""

OTHER_VALUE = 1e-5
"""Part by which the value of one loss in single precision may differ for rounding, in another form of it."""

_OTHER_TERM = 1e-4
"""The same where the term that differs may be computed inside of the model, in its format."""

_FURTHER, _SHOWN = 5, 2
"""Times further than twins' that losses of weights which have parted are other ones, after so many steps.

Of right runs they were as far as twins' at most.
"""

_TAKEN_OUT = 0.1
"""Part of a loss from which on another value of it shows in gradients, if it is in these."""


def reaches_no_weight(step: ChainedStep, off: Collection[str]) -> bool:
    """Tell whether of a model without modules inside the outputs' gradient alone is off, far more than the weights'.

    What follows the weights takes it away, as log-probabilities do whose loss is made of these once more.
    """
    parts = set(step.chain.inside) - step.chain.last
    if parts or not off or not all(name.startswith(OUTPUT) or name in step.chain.last for name in off):
        return False
    of_outputs = Pairs(step, "activation_gradient", list(off)).distances()
    return not step.beyond_margin("gradient") and min(of_outputs) > _TAKEN_AWAY * step.distance("gradient")


_TAKEN_AWAY = 16
"""Times further apart than weights' gradients those of outputs are where what lies between does not pass that on."""
