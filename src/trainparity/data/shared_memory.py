"""How much shared memory the batches of worker processes need, for whom they have failed."""

import shutil
from collections.abc import Sequence

from torch import Tensor

from trainparity.data.prepared import Prepared
from trainparity.params import Loader
from trainparity.records.numbers import number


def advice(dataset: Prepared, plan: Sequence[Tensor], loader: Loader) -> str:
    """Say how much memory the batches of a plan need, how much there is, and what to change."""
    sample = sum(tensor[:1].nbytes for tensor in dataset.tensors.values()) + 8  # and its index
    largest = max(len(samples) for samples in plan) * sample
    return (
        f"num_workers {loader.workers} x prefetch_factor {loader.prefetch_factor} batches of {_size(largest)} wait in "
        f"shared memory, which has {_there_is()}: set loader.workers or loader.prefetch_factor lower, give a "
        "container more of it (docker: --shm-size, compose: shm_size), or set loader.deadline_s higher if a batch "
        "really takes that long; with workers: 0 none of this is needed"
    )


def _there_is() -> str:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return "an unknown size"
    return f"{_size(usage.total)}, {_size(usage.free)} free"


def _size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{number(num_bytes)} {unit}"
        num_bytes /= 1024
    return f"{number(num_bytes)} GiB"
