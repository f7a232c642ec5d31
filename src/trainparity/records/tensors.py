"""How tensors are written: as safetensors, which refuses tensors that share memory, as tied weights do."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors of the CPU by name into a file; what shares memory with another is written as a copy.

    Raises:
        OSError: the file system refuses, as where it is full.
    """
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    end, copied = 0, set()
    for name in sorted(plain, key=lambda name: plain[name].data_ptr()):
        tensor = plain[name]
        if tensor.numel() and tensor.data_ptr() < end:
            copied.add(name)
        end = max(end, tensor.data_ptr() + tensor.nbytes)
    own = {name: tensor.clone() if name in copied else tensor for name, tensor in plain.items()}
    try:
        save_file(own, path)
    except SafetensorError as error:
        if not (refused := _REFUSED.search(str(error))):
            raise
        number = int(refused["number"] or refused["code"])
        raise OSError(number, os.strerror(number), str(path)) from None


_REFUSED = re.compile(r"I/O error: .+\(os error (?P<number>\d+)\)|IoError\(Os \{ code: (?P<code>\d+),")
"""What stands in the exception of a library in Rust that got an error of the system: today's form, an older one."""
