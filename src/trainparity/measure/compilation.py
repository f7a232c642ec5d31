"""What torch.compile did, by Dynamo's own account. The private names it needs stay in this file."""

import tempfile
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from trainparity.environment_variables import in_environment

_FRAME = "_compile.compile_inner"
"""Dynamo's phase around one frame: tracing, the forward's kernels and a backward that is compiled with them."""
_LATE_BACKWARD = "backward._backward_impl"
"""Its phase around a backward graph that is compiled when first needed.

Not `bw_compiler`, which lies inside either of the two: a frame with dynamic shapes compiles its backward at once.
"""

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables that name the folders in which compilers keep what they made."""


def prepare() -> None:
    """Have the compiler do what it does once on a machine, whatever the model, and keep that in its usual cache.

    It builds and loads libraries to see which vector instructions work here, one after the other (7 s, measured). Its
    headers, precompiled (5 s), it would keep beside temporary files, which go at a run's end.
    """
    with suppress(Exception):  # the time is lost then, nothing else; what the run needs itself, it says
        from torch._inductor import codecache, cpu_vec_isa
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        flags = set(cpu_vec_isa.x86_isa_checker())
        with ThreadPoolExecutor() as pool:  # each set of instructions keeps in this process whether it works
            list(pool.map(bool, [isa for isa in cpu_vec_isa.supported_vec_isa_list if flags >= set(str(isa).split())]))
        headers = Path(cache_dir()) / "precompiled_headers"
        for name, place in (("_HEADER_DIR", headers), ("_HEADER_LOCK_DIR", headers / "locks")):
            if hasattr(codecache, name):
                setattr(codecache, name, str(place))


@contextmanager
def own_kernels() -> Iterator[None]:
    """Keep what is compiled in a folder that is empty at first and goes at the end.

    What is first compiled there is compiled cold; when it is compiled again, deterministically or not, kernels of the
    same source are there already, which are most of the cost.
    (https://docs.pytorch.org/docs/stable/torch.compiler_config.html)
    """
    empty = tempfile.TemporaryDirectory(prefix="trainparity-kernels-", ignore_cleanup_errors=True)
    with empty as folder, in_environment({name: str(Path(folder) / name.lower()) for name in CACHES}):
        yield


def reset() -> None:
    """Forget compiled code and counts; what `own_kernels` or another cache keeps is found again."""
    torch.compiler.reset()
    account = _account()
    if account:
        for counts in account:
            counts.clear()
    with suppress(ImportError):
        from torch._dynamo.utils import graph_break_reasons

        graph_break_reasons.clear()


def read() -> tuple[float | None, int | None, int | None]:
    """Return seconds of compilation (forward and backward), graphs and graph breaks since `reset`.

    None stands for what this version of torch does not account for under the names known here: a figure that
    is missing, where 0 would be a wrong one.
    """
    account = _account()
    if account is None:
        return None, None, None
    phases, counters = account
    graphs = int(counters["stats"]["unique_graphs"])
    breaks = int(sum(counters["graph_break"].values()))
    if graphs and _FRAME not in phases:
        return None, graphs, breaks
    return float(sum(sum(phases.get(name, ())) for name in (_FRAME, _LATE_BACKWARD))), graphs, breaks


def break_places() -> list[str]:
    """Return why and where each graph broke since `reset`, as `file.py:12 in forward: reason`, each once."""
    try:
        from torch._dynamo.utils import graph_break_reasons
    except ImportError:
        return []
    return list(dict.fromkeys(map(_place, graph_break_reasons)))


def _place(cause: Any) -> str:
    reason = str(cause.reason).strip().splitlines()[0]
    if not cause.user_stack:
        return reason
    frame = cause.user_stack[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {reason}"


def _account() -> tuple[MutableMapping[str, list[float]], MutableMapping[str, Any]] | None:
    """Return Dynamo's seconds by phase and its counters; None if this version of torch keeps none."""
    try:
        # It is imported when first used: an attribute of torch only from then on.
        import torch._dynamo.utils as utils

        return utils.compilation_time_metrics, utils.counters
    except (ImportError, AttributeError):
        return None
