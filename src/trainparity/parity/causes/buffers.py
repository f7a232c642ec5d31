"""Buffers alone."""

from trainparity.parity.causes.finding import Evidence, Finding, rule, some
from trainparity.parity.causes.passes import same_cut
from trainparity.parity.difference import Difference
from trainparity.parity.distance import ALL


@rule(
    "buffers-only",
    "buffers",
    proof="gradients, updates and weights agree; buffers, such as running statistics, do not",
    advice="nothing for training; for evaluation use SyncBatchNorm, or average the statistics over ranks",
)
def buffers_only(difference: Difference) -> Finding | None:
    """Gradients, updates and weights are the same training; only buffers differ."""
    if difference.stage != "buffer":
        return None
    names = [name for name in difference.beyond["buffer"] if name != ALL]
    evidence: Evidence = {"buffers": names, "distance": difference.distance("buffer")}
    counter = next((name for name in names if name.endswith(_COUNTER)), None)
    if counter is None and same_cut(difference):
        return Finding(
            f"only buffers differ, first {some(names)}, over the same samples in the same passes",
            evidence,
            "compare what updates them, as the momentum of BatchNorm's running statistics",
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


_COUNTER = "num_batches_tracked"
