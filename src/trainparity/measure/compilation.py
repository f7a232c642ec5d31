"""What torch.compile did, by Dynamo's own account. The private names it needs stay in this file."""

import torch


def reset() -> None:
    """Forget compiled code and counts, so that the next call compiles cold."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.compilation_time_metrics.clear()


def read() -> tuple[float, int, int]:
    """Return seconds of compilation (forward and backward), graphs and graph breaks since `reset`."""
    metrics = torch._dynamo.utils.compilation_time_metrics
    # The outermost phases: frames as Dynamo sees them, and backward graphs compiled when first needed.
    seconds = sum(sum(metrics.get(name, ())) for name in ("_compile.compile_inner", "compile_fx.<locals>.bw_compiler"))
    counters = torch._dynamo.utils.counters
    graphs = int(counters["stats"]["unique_graphs"])
    return float(seconds), graphs, int(sum(counters["graph_break"].values()))
