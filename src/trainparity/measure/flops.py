"""Floating-point operations: how many a step takes, and how many the device can do."""

import time
from collections.abc import Callable

import torch

from trainparity.measure.clocks import synchronise
from trainparity.params import Precision

_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def count_flops(step: Callable[[], object]) -> float | None:
    """Count the operations of matrix products, convolutions and attention; None if they can't be counted."""
    from torch.utils.flop_counter import FlopCounterMode  # it warns of missing Triton when imported

    try:
        with FlopCounterMode(display=False) as counter:
            step()
    except (RuntimeError, NotImplementedError):  # an operation without a meta implementation
        return None
    return float(counter.get_total_flops()) or None


def peak_flops(device: torch.device, precision: Precision, seconds: float = 0.1) -> float:
    """Measure the best rate of square matrix products in FLOP/s, over two sizes of `seconds` / 2 each."""
    sizes = (512, 1024) if device.type == "cpu" else (4096, 8192)
    return max(_rate(device, _DTYPES[precision], size, seconds / 2) for size in sizes)


def _rate(device: torch.device, dtype: torch.dtype, size: int, seconds: float) -> float:
    """Return the best rate of a few products at once: what else uses a processor slows others of them down."""
    a = torch.randn(size, size, device=device).to(dtype)
    a @ a
    synchronise(device)
    best, end = float("inf"), time.perf_counter() + seconds
    while (started := time.perf_counter()) < end or best == float("inf"):
        for _ in range(_AT_ONCE):  # a GPU would wait for each call otherwise
            a @ a
        synchronise(device)
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 * _AT_ONCE / best


_AT_ONCE = 4
