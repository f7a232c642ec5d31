"""What a run computes with: versions, device, threads, flags and environment variables that change rounding."""

import os
import platform

import torch
from torch import nn

from trainparity.parity.recording.formats import device_of

_VARIABLES = ("ATEN_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "KMP_", "MKL_", "NCCL_", "OMP_", "ONEDNN_", "PYTORCH_",
              "TORCH")  # fmt: skip
"""Beginnings of the names of environment variables that torch and its libraries read."""

_PLACES = ("TORCHELASTIC_", "TORCH_NCCL_", "_DIR", "_HOME", "_ID", "_PATH")
"""Parts of the names of those that tell where a run is or when it gives up, as `torchrun` sets, and not how it
computes."""


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


def _matters(name: str) -> bool:
    return name.startswith(_VARIABLES) and not any(part in name for part in _PLACES)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def differing(left: dict[str, str], right: dict[str, str], runs: tuple[str, str]) -> list[str]:
    """Say what is not equal in two runs, each by its run's name; what was not set is `-`."""
    names = [name for name in dict.fromkeys([*left, *right]) if left.get(name) != right.get(name)]
    return [f"{name}: {left.get(name, '-')} in {runs[0]}, {right.get(name, '-')} in {runs[1]}" for name in names]
