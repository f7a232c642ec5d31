"""Gradients that ranks divide otherwise where they add them up."""

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.loss import tolerance_of
from trainparity.parity.causes.passes import (
    EQUAL,
    SAME_COUNT,
    backward_makes_equal,
    multiples_of_gradients,
    parameters_beyond,
    same_cut,
    same_start,
)
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some
from trainparity.records.numbers import exact


@rule(
    "loss-normalisation",
    "reduction",
    proof="what modules return and all gradients that come back to them have the same bits, what each rank's backward "
    "makes agrees where it was recorded, and gradients of parameters are the reference's times the number of ranks",
    advice="divide what ranks add up once by their number: compare set_gradient_divide_factor, communication hooks "
    "and hooks on the named parameters",
)
def divided_otherwise(difference: Difference) -> Finding | None:
    """Gradients of some parameters, or all, that ranks sum in one run and average in the other."""
    ranks = min(trace.layout.world_size for trace in difference.traces)
    chain, names = difference.chain, parameters_beyond(difference)
    if ranks < 2 or not names or not same_start(difference) or not same_cut(difference):
        return None
    if not chain.judged or chain.one_sided or chain.other_bits or chain.given_other_bits:
        return None
    if difference.own_scale is not None:  # what a rank makes is seen: unless all of it is changed, it is no sum
        summed = _are_all(difference, names) or _each_rank_has_its_own(difference, names)
        if not summed or not backward_makes_equal(difference):
            return None
    fits = multiples_of_gradients(difference)
    factors, left_over = zip(*(fits[name] for name in names), strict=True)
    if max(left_over) > tolerance_of(difference):
        return None
    if not any(all(abs(factor / count - 1) < SAME_COUNT for factor in factors) for count in (ranks, 1 / ranks)):
        return None
    over = "" if factors[0] > 1 else "one over "
    return Finding(
        f"the gradient of {some(names)} is {exact(factors[0], 4)} times in {difference.runs[1]} what it is in "
        f"{difference.runs[0]}: {over}the number of ranks, which divide otherwise what they add up; what modules "
        "return and the gradients that come back to them have the same bits",
        {
            "parameters": names,
            "factors": [*factors],
            "ranks": float(ranks),
            "equal": [*EQUAL, "gradients of all modules"],
        },
    )


def _are_all(difference: Difference, names: list[str]) -> bool:
    """Tell whether these are all parameters with a gradient."""
    ours, theirs = difference.norms("gradient")
    return set(names) >= set(difference.named((ours > 0) | (theirs > 0)))


def _each_rank_has_its_own(difference: Difference, names: list[str]) -> bool:
    """Tell whether ranks hold other parameters of these names, as experts, which have a part in the loss of all."""
    apart = [trace.arrays.get("rank/weight_apart") for trace in difference.traces]
    if apart[0] is None or apart[1] is None:
        return False
    return set(names) <= set(difference.named((apart[0] & apart[1])[difference.row].bool()))
