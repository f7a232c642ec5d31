"""Forward passes and losses that differ in a coarse format though gradients are within their floor.

What modules return, and the gradient of what the loss is made of, are rounded less often than a gradient is: where both
runs pass the same samples from equal weights these show another function or another loss that gradients do not.
"""

from collections.abc import Collection, Sequence

import torch

from trainparity.parity.noise.distance import times
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import INPUT, depends_on_cut, made
from trainparity.parity.steps.after_backward import kept_after_backward
from trainparity.parity.steps.chain import REROUNDED, ROUNDED
from trainparity.parity.steps.chained_step import ChainedStep
from trainparity.parity.steps.comparable_rows import passed_alike
from trainparity.parity.steps.other_arithmetic import has_weights
from trainparity.parity.steps.other_losses import (
    OTHER_VALUE,
    of_one_term,
    other_loss_beside,
    other_loss_of_other_values,
    other_loss_of_same_bits,
    reaches_no_weight,
)
from trainparity.parity.steps.zero_weights import without_effect


def passes_part(step: ChainedStep) -> bool:
    """Tell whether the forward pass or the loss differs though the floor of a coarse format may hide it in gradients.

    Asked where both runs pass the same samples, from equal weights. In another cut the gradient of equal outputs alone
    can tell, by a loss that is a sum over samples; in another order of a pass's samples, too, by any loss. Other sums
    may depend on both: rows inside of a model, as those of a packed sequence, need be no samples.
    """
    hashes, rows, order = (step.pair(name) for name in ("samples", "rank/rows", "rank/samples"))
    layouts = step.left.layout, step.right.layout
    hidden = is_coarse(layouts[0]) or _takes_gradients(step)
    if not hidden or not step.same_precision or not (hashes and rows and order):
        return False
    if not rows[0].any() or step.beyond_margin("start"):
        return False
    if not torch.equal(*hashes):
        return other_loss_of_other_values(step)
    chain, same_cut = step.chain, torch.equal(*rows)
    if set(chain.outputs) & set(chain.one_sided):
        return True  # as behind a detach in one run
    scaled = scaled_and_back(step)
    other_size = step.of_other_size
    given = [] if scaled else [name for name in chain.given_otherwise if name not in other_size]
    other_loss = not scaled and (other_loss_of_same_bits(step) or other_loss_beside(step))
    if not same_cut or not torch.equal(*order):
        coupled = not same_cut and (layouts[0].loss_coupled_by or layouts[1].loss_coupled_by)
        of_outputs = bool(given and chain.outputs_agree) and not coupled and not chain.touched
        of_outputs = of_outputs and not _is_another_form(step, given)
        if of_outputs or other_loss or _has_other_values_beside(step, other_size):
            return True
        return bool(not chain.unread and further_on(step)) or bool(parted_at_weights(step))
    passed = [name for name in (*chain.forward, *chain.further_than_twins) if not depends_on_cut(name)]
    if not chain.touched:  # a mask that hides nothing, or labels at another place
        passed = made(passed)
        if chain.outputs_agree and not given and _is_another_formulation(step, passed):
            passed = [name for name in passed if has_weights(step, name) and name not in chain.plainly_other]
    passed = [] if chain.unread else [name for name in passed if name not in other_size]
    off = {*passed, *given}
    return (bool(off) and not _is_another_form(step, off)) or other_loss or bool(parted_at_weights(step))


def _is_another_form(step: ChainedStep, off: Collection[str]) -> bool:
    """Tell whether the runs part only in the form of what the model returns, as log-probabilities for logits."""
    return (step.chain.another_form(off) or reaches_no_weight(step, off)) and not of_one_term(step, off)


def _takes_gradients(step: ChainedStep) -> bool:
    """Tell whether neither run has a gradient at the step, as where both take them to copies of the weights."""
    return not any(bool(lengths.any()) for lengths in step.norms("gradient"))


def further_on(step: ChainedStep) -> list[str]:
    """Return what modules make otherwise of the same, in another cut, if the model returns something else for that.

    What alone is off has rows that are no samples: its sums depend on the cut.
    """
    chain, other_size = step.chain, step.of_other_size
    further = [name for name in chain.further_than_twins if name not in other_size and not depends_on_cut(name)]
    ends = chain.judged or made(chain.names)[-1:]
    return further if set(ends) & set(chain.other_bits) else []


def parted_at_weights(step: ChainedStep) -> list[str]:
    """Return weights of zero whose gradients are apart, though all else that comes and goes has the same bits.

    They hide what they are given from all that comes after, and what comes back from all before. Other weights may add
    up many rows otherwise, as an embedding those of one token.
    """
    chain, layout, row = step.chain, step.left.layout, step.row
    if not is_coarse(layout) or not step.same_precision or step.distance("start"):
        return []
    if chain.other_bits or chain.given_other_bits or not chain.given_back:
        return []
    zero, alike = without_effect(step), passed_alike(step)
    counts = layout.numbers()
    looked_at = [count >= _FEW and name in zero for name, count in counts.items()]
    noisy = torch.tensor([not alike or count < _NUMBERS for count in counts.values()])
    excused = torch.where(noisy, ROUNDED * step.floor["gradient"][row, :-1], 0.0)
    excused = excused.clamp(min=REROUNDED * layout.unit_roundoff)
    return step.named((step.distances("gradient")[row, :-1] > excused) & torch.tensor(looked_at))


_FEW, _NUMBERS = 8, 32
"""Numbers of a parameter from which on its gradient says something, and its distance is no matter of chance."""


def _is_another_formulation(step: ChainedStep, passed: Sequence[str]) -> bool:
    """Tell whether modules return something else of which nothing else is made.

    As A(XW) for (AX)W: what has weights returns something plainly else. Or as positions that begin anew in each of a
    batch's texts, of which attention takes the differences: only what has no weights, and is given another input,
    returns something else. Each gradient is about as near to the reference's as twins' are then: a module that is given
    something else, and makes something else of it in the end, has another gradient.
    """
    row, first = step.row, next(iter(passed), "")
    other = first in step.chain.plainly_other and has_weights(step, first)
    of_inputs = bool(step.chain.other_inputs) and not any(has_weights(step, name) for name in passed)
    if not first or not (other or of_inputs):
        return False
    off = times(step.distances("gradient")[row], step.floor["gradient"][row])
    by_chance = other or bool(off[-1] <= _WELL_WITHIN)  # a single one
    return bool((off <= (ROUNDED if by_chance else 1.0)).all())


_WELL_WITHIN = 0.3
"""Floors that the whole gradient is off at most where it is made of the same positions, counted from elsewhere.

Of 116 runs those lay at 0.53, with each parameter within a floor, or at 0.24; positions 2 % further at 0.33.
"""


def _has_other_values_beside(step: ChainedStep, other_size: Collection[str]) -> bool:
    """Tell whether the same samples, in whatever cut, come with other values beside them, and make something else."""
    off = [name for name in step.chain.forward if name not in other_size]
    given = [name for name in off if name.startswith(INPUT) and not depends_on_cut(name)]
    unread = step.chain.unread  # as what a decoder is given where no loss is made
    return bool(given) and len(given) < len(off) and not step.chain.outputs_agree and not unread


def given_otherwise(step: ChainedStep) -> list[str]:
    """Return the outputs that are given another gradient, but for a factor that the loop takes out of it again."""
    return [] if scaled_and_back(step) else step.chain.given_otherwise


def scaled_and_back(step: ChainedStep) -> bool:
    """Tell whether the loss is the reference's times a number, which the loop takes out of the gradients again."""
    chain, (factor, rest) = step.chain, step.scale
    if not chain.given_otherwise or chain.one_sided or set(chain.given_otherwise) & set(chain.bent):
        return False
    kept = [kept_after_backward(trace, step.row) for trace in step.traces]
    if all(kept) and abs(kept[1] / kept[0] - 1) > _PLAINLY * _AS_SCALED:
        return abs(chain.factor * kept[1] / kept[0] - 1) <= _AS_SCALED
    noise = max(rest, OTHER_VALUE)
    # After backward, or within it, by hooks on the parameters.
    made = any(abs(step.own_factor - taken) <= noise * abs(taken) for taken in (chain.factor, factor))
    return made and noise < abs(chain.factor - factor) / _PLAINLY and abs(factor - 1) <= noise


_AS_SCALED = 0.01
"""Part by which the factor of an outputs' gradient may be off what the loop multiplies gradients by, for rounding."""

_PLAINLY = 4
"""Times what rounding leaves over that a number in the gradient would be seen by."""
