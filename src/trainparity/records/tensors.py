"""How tensors are written: as safetensors, which refuses tensors that share memory, as tied weights do."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors of the CPU by name into a file; what shares memory with another is written as a copy."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    end, copied = 0, set()
    for name in sorted(plain, key=lambda name: plain[name].data_ptr()):
        tensor = plain[name]
        if tensor.numel() and tensor.data_ptr() < end:
            copied.add(name)
        end = max(end, tensor.data_ptr() + tensor.nbytes)
    save_file({name: tensor.clone() if name in copied else tensor for name, tensor in plain.items()}, path)
