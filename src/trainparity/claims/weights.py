"""The weights that a run ended with, as published ones are given: one list of numbers."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def final_weights(path: Path) -> np.ndarray:
    """Return the weights in a safetensors file, joined in the order of their names: float64 [n]."""
    tensors = load_file(path)
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(np.float64)
