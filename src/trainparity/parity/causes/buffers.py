"""Buffers alone."""

from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.passes import same_cut
from trainparity.parity.noise.distance import ALL
from trainparity.parity.noise.rounding import is_count, never_change
from trainparity.parity.steps.carried import carried_on
from trainparity.parity.steps.comparable_rows import passed_alike
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some


def _other_constants(difference: Difference) -> list[str]:
    """Return the buffers that differ, where no step of either run changes one of them."""
    names = _beyond(difference)
    return names if set(names) <= set.intersection(*map(never_change, difference.traces)) else []


def _beyond(difference: Difference) -> list[str]:
    return [name for name in difference.beyond["buffer"] if name != ALL]


@rule(
    "forward",
    "buffers",
    proof="a buffer that no step changes has other values from the start, and what modules return of the same samples, "
    "in the same passes and from the same weights, has other bits",
    advice="compare what such constants are made of: a table, a mask or a schedule that the model computes with",
)
def with_other_constants(difference: Difference) -> Finding | None:
    """A constant that the model computes with is another one, and a coarse format's floor hides what that makes."""
    if difference.stage != "buffer" or difference.row or difference.distance("start"):
        return None
    names, chain = _other_constants(difference), difference.chain
    if not names or not passed_alike(difference) or not chain.other_bits:
        return None
    return Finding(
        f"{some(names)}: no step changes them, and they have other values in {difference.runs[1]} from the start; the "
        f"output of {chain.other_bits[0]} is the first that has other bits",
        {"buffers": names, "distance": difference.distance("buffer"), "first_output": chain.other_bits[0]},
    )


@rule(
    "buffers-only",
    "buffers",
    proof="gradients, updates and weights agree; buffers, such as running statistics, do not",
    advice="nothing for training; for evaluation use SyncBatchNorm, or average the statistics over ranks",
)
def buffers_only(difference: Difference) -> Finding | None:
    """Gradients, updates and weights are the same training; only buffers differ."""
    if difference.stage != "buffer" or difference.fed_by_buffers:
        return None
    names = _beyond(difference)
    evidence: Evidence = {"buffers": names, "distance": difference.distance("buffer")}
    if _other_constants(difference):
        return Finding(
            f"only buffers differ, first {some(names)}: no step changes them, so they have other values from the start",
            evidence,
            "compare what such constants are made of: a table, a mask or a schedule",
        )
    counter = next((name for name in names if is_count(name)), None)
    if counter is None and same_cut(difference):
        return Finding(
            f"only buffers differ, first {some(names)}, over the same samples in the same passes",
            evidence,
            "compare what updates them, as the momentum of BatchNorm's running statistics",
        )
    if counter is None and not all(map(difference.is_running_statistic, names)):
        return Finding(
            f"only buffers differ, first {some(names)}: what is put into them depends on how the batch is cut, or in "
            "which order it comes",
            evidence,
            "gather what all ranks and micro-batches put into them, in one order",
        )
    if counter is None:
        return Finding(
            f"only buffers differ, first {some(names)}: each rank or micro-batch updates running statistics from its "
            "share",
            evidence,
        )
    place = list(difference.left.layout.buffers).index(counter)
    counts = [float(norms[place]) for norms in difference.norms("buffer")]
    return Finding(
        f"only buffers differ, first {some(names)}: {counter} is {counts[0]:g} in {difference.runs[0]} and "
        f"{counts[1]:g} in {difference.runs[1]}, as more forward passes update running statistics",
        evidence | {"batches_counted": counts},
        "compare the number of passes in training mode: micro-batches, validation without model.eval(), activation "
        "checkpointing that runs a BatchNorm again",
    )


@rule(
    "buffers-only",
    "buffers",
    proof="gradients, updates and weights agree until buffers that are no running statistics of BatchNorm have parted "
    "in the step before",
    advice="compare what updates them: such as a centre, a code book or a queue that all ranks put their share into",
)
def fed_by_buffers(difference: Difference) -> Finding | None:
    """Buffers that the next step's loss is made with."""
    if not difference.fed_by_buffers:
        return None
    names = [name for name in _beyond(difference) if not difference.is_running_statistic(name)]
    return Finding(
        f"buffers differ first, {some(names)} at step {difference.step}, where gradients, updates and weights agree: "
        "those of the next step, which is made with them, do not",
        {"buffers": names, "distance": difference.distance("buffer")},
    )


@rule(
    "buffers-only",
    "buffers",
    proof="what a module returns is the first that differs, by about as much as buffers that it holds did after the "
    "step before, which a coarse format's floor hid",
    advice="compare what updates them: such as a centre, a code book or a queue that all ranks put their share into",
)
def read_from_buffers(difference: Difference) -> Finding | None:
    """Buffers that a forward pass reads, as a code book, and that have parted before."""
    first = difference.first_activation
    carried = carried_on(difference, first) if difference.stage == "gradient" and first else []
    held = [name for name in carried if name in difference.left.layout.buffers]
    if not held or held != carried or any(map(difference.is_running_statistic, held)):
        return None
    return Finding(
        f"the output of {first} is the first that differs, and buffers that it is made with did so after the step "
        f"before: {some(held)}",
        {"buffers": held, "first_output": str(first)},
    )
