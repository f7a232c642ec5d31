"""Buffers alone."""

from trainparity.parity.causes.finding import Finding, rule, some
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
    return Finding(
        f"only buffers differ, first {some(names)}: each rank or micro-batch updates running statistics from its share",
        {"buffers": names, "distance": difference.distance("buffer")},
    )
