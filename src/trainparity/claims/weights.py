"""The weights that a run ended with, as published ones are given: one list of numbers."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def final_weights(run: Path) -> np.ndarray:
    """Return the final weights in a run's folder, joined in the order of their names: float64 [n]."""
    tensors = load_file(run / "state" / "weights.safetensors")
    return np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(np.float64)
