"""Where on the way of one step two runs part: what modules return, and the gradients that come back through them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from trainparity.parity.noise.distance import SUMMED_OTHERWISE
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.names import INPUT, OUTPUT, depends_on_cut, inside, made
from trainparity.parity.steps.comparable_rows import called_otherwise, calls, comparable, passed_alike
from trainparity.parity.steps.other_arithmetic import first_other_bits, further_than_twins
from trainparity.parity.steps.sketch_pairs import Pairs
from trainparity.parity.steps.step_pair import StepPair


@dataclass(frozen=True)
class Chain:
    """One step's forward and backward passes in both runs, compared where both have recorded them."""

    names: list[str]
    """What both runs have seen, in the reference's order."""
    outputs: list[str]
    """What the loop got from the model or from parts of it and gave to no other part; empty where that has no rows."""
    returned: set[str]
    """Those, and what parts return that the loop hands on by other than their first argument, as a state."""
    last: set[str]
    """Modules inside that return what the model does, as its last one, and the same in both runs."""
    judged: list[str]
    """Those of them through which a gradient came: the loss is computed from them. Where the model itself computes the
    loss and returns nothing else that this is made of, the last module's output."""
    forward: list[str]
    """Those whose values are beyond the margin."""
    further_than_twins: list[str]
    """Those further apart than other arithmetic makes them of the same weights and, in the first modules, the same
    bits: twins, which move all weights, are further apart than that."""
    lost: list[str]
    """Those whose values differ where the floor is too wide to say whether they agree."""
    plainly_other: list[str]
    """Those whose values are something else, as of another way to compute what a model returns."""
    other_bits: list[str]
    """Those whose values differ at all."""
    given_other_bits: list[str]
    """Those whose gradient differs at all, where both runs have one."""
    given_more_than_stored: list[str]
    """Those whose gradient differs by more than a few of its numbers do that are rounded the other way."""
    given_carried: bool
    """Whether gradients inside differ about as far as those judged do: another form of one loss does not carry on."""
    given_more_than_rounded: list[str]
    """Those whose gradient differs by more than one operation's rounding."""
    given_to_one: list[str]
    """What one run's model alone is given beside samples, as a hidden state."""
    touched: list[str]
    """The outputs whose values are beyond the floor itself."""
    given_back: list[str]
    """Those through which a gradient came in both runs."""
    one_sided: list[str]
    """Those through which a gradient came in one run only."""
    factor: float
    """The other run's gradient of these, as a multiple of the reference's; 1 where none was seen."""
    loss_is_exact: bool
    """Whether a loss in a fine format is made of the same bits in both runs, which compute in a coarse one."""
    given_lost: list[str]
    """Those whose gradient differs where the floor is too wide to say whether it agrees."""
    given_otherwise: list[str]
    """Those judged whose gradient is beyond the margin, by a factor or not."""
    bent: list[str]
    """Those judged whose gradient is more than `ROUNDED` floors off when the factor is taken away."""
    reached: list[str]
    """The model's modules to whose output a gradient comes back that is more than `ROUNDED` floors off."""
    unread: bool
    """Whether what the model returns is far apart, and the gradient of the loss by it is not: they are apart where the
    loss does not look, as at tokens that fill a sequence up."""
    backward: list[str]
    """Those whose gradient is beyond the margin when that factor is taken away, and further beyond it than the forward
    pass, whose small differences a curved function makes larger."""

    @classmethod
    def of(cls, step: StepPair) -> "Chain":
        """Compare the step's passes."""
        alike = passed_alike(step)
        otherwise = called_otherwise(step)
        outputs = [name for name in step.left.layout.outputs if name in step.right.layout.outputs]
        outputs = [name for name in outputs if name not in otherwise]
        names = comparable(step, outputs)
        values = Pairs(step, "activation", names)
        gradients = Pairs(step, "activation_gradient", names)
        given_back = gradients.in_both()
        one_sided = gradients.in_one()
        judged = [name for name in outputs if name in given_back]
        if not judged and (given_back[-1:] or is_blind_in_one(step)):
            judged = given_back[-1:]  # in one run at least the loss is made inside, of the last output there
            one_sided = [name for name in one_sided if name not in outputs]
        if not set(outputs) <= set(names):
            judged = []  # some of what the loss is computed from was not seen
        other_bits = values.apart(names, _same(alike))
        loss_is_exact, unit = not other_bits and _loss_is_fine(step), step.left.layout.unit_roundoff
        if loss_is_exact:  # what such outputs are given rounds where it is stored, and nowhere else
            gradients.narrow(judged, unit / 2)
        factor = gradients.factor(judged) if judged else 1.0
        handed_on = _MAGNIFIED * values.furthest(made(names)) if alike else 0.0
        forward, further = values.beyond(names, 1.0, step.margin), further_than_twins(step, values, other_bits)
        last = values.same(inside(names), [name for name in outputs if name in names])
        return cls(
            names=names,
            outputs=outputs,
            returned=set(step.left.layout.given_outputs) & set(step.right.layout.given_outputs),
            last=last - {*forward, *further},
            judged=judged,
            forward=forward,
            further_than_twins=further,
            lost=values.lost(),
            plainly_other=values.apart(made(names), _PLAINLY),
            other_bits=other_bits,
            given_other_bits=gradients.apart(given_back, _same(alike)),
            given_more_than_stored=gradients.apart(given_back, unit / 16),
            given_carried=bool(judged) and gradients.carried(judged, inside(given_back)),
            given_more_than_rounded=gradients.apart(given_back, REROUNDED * unit),
            given_to_one=_given_to_one(step) if alike else [],
            touched=values.beyond([name for name in outputs if name in names], 1.0, 1.0),
            given_back=given_back,
            one_sided=one_sided,
            factor=factor,
            loss_is_exact=loss_is_exact,
            given_lost=gradients.lost(),
            given_otherwise=gradients.beyond(judged, 1.0, step.margin),
            bent=gradients.beyond(judged, factor, ROUNDED),
            reached=gradients.beyond(inside(given_back), 1.0, ROUNDED),
            unread=values.furthest(judged) > _UNREAD * max(gradients.furthest(judged), 1.0),
            backward=gradients.beyond(given_back, factor, max(step.margin, handed_on)),
        )

    @property
    def outputs_agree(self) -> bool | None:
        """Whether all that the model returned agrees; None if not all of it was recorded, or the floor hides it.

        Of a model that returns its loss alone it is what its modules return.
        """
        inside = set(self.outputs or made(self.names))
        if (inside | self.returned) & set(self.forward):
            return False
        if inside & set(self.lost):
            return None
        return True if inside and inside <= set(self.names) else None

    def another_form(self, off: Collection[str]) -> bool:
        """Tell whether the runs part only in the form of what the model returns, as log-probabilities for logits.

        No module inside is among `off` then, but one that returns that itself, and what comes back to the others
        agrees: one loss of what they make.
        """
        ends = all(name.startswith(OUTPUT) or name in self.last for name in off)
        others = {*self.inside} - self.last
        return ends and bool(others & set(self.given_back)) and not others & set(self.reached)

    @property
    def parts_on_the_way_back(self) -> list[str]:
        """Those whose gradient differs, where all that modules return has the same bits, and the outputs' gradient."""
        same = bool(self.judged) and not self.other_bits and self.given_same_bits
        return self.given_more_than_rounded if same else []

    @property
    def given_same_bits(self) -> bool:
        """Whether the gradient of what the loss is computed from has the same bits in both runs."""
        return not set(self.judged) & set(self.given_other_bits)

    @property
    def first_other_bits(self) -> str | None:
        """The first that is not equal to the last bit, behind others that are: where equal weights make something else.

        None where the first of all differs already, as on another device.
        """
        return first_other_bits(self.names, self.other_bits)

    @property
    def inside(self) -> list[str]:
        """The model's modules that both runs have seen: none where one of them runs compiled."""
        return inside(self.names)

    @property
    def other_inputs(self) -> list[str]:
        """What the model is given with other values."""
        return [name for name in self.forward if name.startswith(INPUT)] + self.given_to_one


def _same(alike: bool) -> float:
    """Return the relative distance of sums of the same numbers: in another order or cut of the samples they round."""
    return 0.0 if alike else SUMMED_OTHERWISE


def is_blind_in_one(step: StepPair) -> bool:
    """Tell whether one run alone, which is compiled, shows nothing inside: there a loss made inside is not seen."""
    seen = [bool(inside(trace.layout.activations)) for trace in step.traces]
    return seen[0] != seen[1]


def _loss_is_fine(step: StepPair) -> bool:
    """Tell whether the loss is computed finer than the model computes, in both runs.

    Not where gradients are scaled by other numbers, which round and vanish otherwise.
    """
    layouts = step.left.layout, step.right.layout
    if not is_coarse(layouts[0]) or not step.same_precision or len(set(step.numbers("scale/value"))) > 1:
        return False
    return all(0 < layout.loss_roundoff <= UNIT_ROUNDOFF["fp32"] for layout in layouts)


def _given_to_one(step: StepPair) -> list[str]:
    """Return what the model is given in one run only that has no row for each sample, and is not zero.

    Not the few numbers that a model which makes its loss itself is given, such as a count of tokens. What has a row for
    each sample may be labels, or a mask that hides nothing; it counts where the model makes more of it, as of views, in
    larger batches or in more calls.
    """
    more = bool(set(inside([*step.of_other_size])))
    few = max(2.0, min(*step.numbers("num_samples"), step.left.layout.sketch_size / 2))
    layouts = step.left.layout.activations, step.right.layout.activations
    found = []
    for trace, others in ((step.left, layouts[1]), (step.right, layouts[0])):
        of_more = more or _calls_more(trace.layout.activations, others)
        given = ((trace.arrays["activation/sketch"][step.row] != 0).sum(1) >= few).tolist()
        seen = (name for name, there in zip(trace.layout.activations, given, strict=True) if there)
        seen = (name for name in seen if of_more or depends_on_cut(name))
        found += [name for name in seen if name.startswith(INPUT) and name not in others]
    return found


def _calls_more(names: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether a module is called more often than in the other run, in each forward pass."""
    ours, theirs = calls(names), calls(others)
    return any(ours[module] > theirs[module] for module in ours.keys() & theirs.keys() if module != OUTPUT)


_PLAINLY = 0.05
"""Relative distance of what modules return that, as it reaches no output and no gradient, is another formulation."""

ROUNDED = 2
"""Floors by which the gradient of equal outputs may be off for rounding alone."""

REROUNDED = 4
"""Unit roundoffs that one operation's form may change its gradient by."""

_UNREAD = 8
"""How many times further apart than its gradient what a model returns is where the loss does not look at it; by as many
floors: other padding lay 20 to 45 floors apart, and its gradient half a floor."""

_MAGNIFIED = 4
"""How many times further beyond their floor gradients may be than the outputs that they belong to, for that alone."""
