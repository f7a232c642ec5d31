"""What a run computes with: versions, device, threads, flags and environment variables that change rounding."""

import os
import platform

import torch
from torch import Tensor, nn

from trainparity.parity.recording.formats import device_of
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.tensors import is_strided

_VARIABLES = ("ATEN_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "KMP_", "MKL_", "NCCL_", "OMP_", "ONEDNN_", "PYTORCH_",
              "TORCH")  # fmt: skip
"""Beginnings of the names of environment variables that torch and its libraries read."""

_PLACES = ("TORCHELASTIC_", "TORCH_NCCL_", "_DIR", "_HOME", "_ID", "_PATH")
"""Parts of the names of those that tell where a run is or when it gives up, as `torchrun` sets, and not how it
computes."""


MEMORY_FORMAT = "memory format"
"""The name of how numbers of convolutions lie in memory."""

REDUCTION = "format of reduction"
"""The name of the format that ranks send gradients in, where one is set."""


def conditions(model: nn.Module) -> dict[str, str]:
    """Return the facts by name, as text."""
    device = device_of(model)
    facts: dict[str, object] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": _name(device),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "default dtype": torch.get_default_dtype(),
        MEMORY_FORMAT: "channels last" if any(map(_is_channels_last, model.parameters())) else "contiguous",
    }
    if device.type == "cuda":
        facts |= {
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "tf32 in matmul": torch.backends.cuda.matmul.allow_tf32,
            "tf32 in cudnn": torch.backends.cudnn.allow_tf32,
            "cudnn benchmark": torch.backends.cudnn.benchmark,
            "cudnn deterministic": torch.backends.cudnn.deterministic,
            "reduced precision in bf16 matmul": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
            "reduced precision in fp16 matmul": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        }
    named = {f"${name}": value for name, value in os.environ.items() if _matters(name)}
    return {name: str(value) for name, value in {**facts, **dict(sorted(named.items()))}.items()}


def _is_channels_last(weight: Tensor) -> bool:
    """Tell whether a convolution's weight is so, which all that it makes follows."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(weight.ndim)
    if last is None or not is_strided(weight) or is_dtensor(weight) or weight.is_contiguous():
        return False
    return weight.is_contiguous(memory_format=last)


def _matters(name: str) -> bool:
    return name.startswith(_VARIABLES) and not any(part in name for part in _PLACES)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def differing(left: dict[str, str], right: dict[str, str], runs: tuple[str, str]) -> list[str]:
    """Say what is not equal in two runs, each by its run's name; what was not set is `-`."""
    names = [name for name in dict.fromkeys([*left, *right]) if left.get(name) != right.get(name)]
    return [f"{name}: {left.get(name, '-')} in {runs[0]}, {right.get(name, '-')} in {runs[1]}" for name in names]
