"""Gradients that ranks divide otherwise where they add them up."""

from trainparity.parity.causes.finding import Finding, rule, some
from trainparity.parity.causes.loss import tolerance_of
from trainparity.parity.causes.passes import (
    EQUAL,
    SAME_COUNT,
    backward_makes_equal,
    parameters_beyond,
    same_cut,
    same_start,
)
from trainparity.parity.difference import Difference
from trainparity.parity.distance import sketches
from trainparity.parity.fitting import fit
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
    if difference.own_scale is not None and not backward_makes_equal(difference):
        return None
    factors = _factors(difference, names)
    if not factors or not any(all(abs(f / count - 1) < SAME_COUNT for f in factors) for count in (ranks, 1 / ranks)):
        return None
    over = "" if factors[0] > 1 else "one over "
    return Finding(
        f"the gradient of {some(names)} is {exact(factors[0], 4)} times in {difference.runs[1]} what it is in "
        f"{difference.runs[0]}: {over}the number of ranks, which divide otherwise what they add up; what modules "
        "return and the gradients that come back to them have the same bits",
        {"parameters": names, "factors": factors, "ranks": float(ranks), "equal": [*EQUAL, "gradients of all modules"]},
    )


def _factors(difference: Difference, names: list[str]) -> list[float]:
    """Return by which number each of these gradients is the reference's; empty where one is not, but for rounding."""
    left, right = (sketches(trace, "gradient")[difference.row] for trace in difference.traces)
    places = {name: place for place, name in enumerate(difference.left.layout.parameters)}
    fits = [fit(left[places[name]], right[places[name]]) for name in names]
    return [factor for factor, _ in fits] if all(rest <= tolerance_of(difference) for _, rest in fits) else []
