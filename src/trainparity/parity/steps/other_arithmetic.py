"""How far another arithmetic takes what modules return in a coarse format, and what is further apart than that."""

import itertools
from collections.abc import Collection, Sequence

from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import is_of_sums, made, module_of
from trainparity.parity.steps.sketch_pairs import Pairs
from trainparity.parity.steps.step_pair import StepPair


def further_than_twins(step: StepPair, values: Pairs, other_bits: Collection[str]) -> list[str]:
    """Return what modules return further apart than twins, where weights and the first modules' outputs are equal."""
    if not (is_coarse(step.left.layout) and step.same_precision and step.floor.calibrated):
        return []
    first = first_other_bits(values.names, other_bits)
    if step.distance("start") or first is None:
        return []
    numbers = step.left.numbers(step.row)
    many = {name for name, count in numbers.items() if count >= _MANY and not is_of_sums(name)}
    further = values.beyond([name for name in made(values.names) if name in many], 1.0, OTHER_ARITHMETIC)
    if first in further or first not in many or has_weights(step, first) or _weights_between(step, values.names, first):
        return further
    # What a module without weights returns of the same bits was rounded there alone.
    return [*values.apart([first], _OF_ONE_FUNCTION * step.left.layout.unit_roundoff), *further]


def has_weights(step: StepPair, activation: str) -> bool:
    """Tell whether the module that an activation is of has parameters of its own."""
    return any(name.startswith(f"{module_of(activation)}.") for name in step.left.layout.parameters)


def _weights_between(step: StepPair, names: Sequence[str], first: str) -> bool:
    """Tell whether weights that no module is seen to use may lie between an activation and the one before it.

    As an adapter's that is merged into those of its base: of these nobody sees what they make.
    """
    seen, place = [module_of(name).split(".") for name in names], list(names).index(first)
    around = [*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(seen[place - 1], seen[place], strict=False))]
    owners = [name.split(".")[:-1] for name in step.left.layout.parameters]
    return any(owner[: len(around)] == [part for part, _ in around] and owner not in seen for owner in owners)


def first_other_bits(names: Sequence[str], other_bits: Collection[str]) -> str | None:
    """Return the first that is not equal to the last bit, behind others that are; None where the very first is not."""
    returned = made(names)
    first = next((name for name in returned if name in other_bits), None)
    return first if first is not None and first != returned[0] else None


OTHER_ARITHMETIC = 1.5
"""Floors that outputs of another implementation may be apart, of the same weights and inputs. Measured in bf16, by hand
against fused: normalisation, activations, attention, rotary embeddings and sums of products lie at up to 0.8 floors of
that operation alone, and at up to 0.5 in models; a leaky slope of 0.01 and x sigmoid(1.7 x) as GELU at 1.6 and more."""

_OF_ONE_FUNCTION = 2
"""Unit roundoffs that what one function returns may be apart for another form of it; one rounding makes 0.4, a
leaky slope of 0.01 2.5."""

_MANY = 64
"""Numbers from which on the distance of an activation is no matter of chance."""
