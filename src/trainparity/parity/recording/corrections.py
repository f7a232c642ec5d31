"""In which precision an optimizer's step makes Adam's bias corrections, 1 - beta^t."""

import inspect
import sys

import torch
from torch import Tensor

from trainparity.parity.recording.joint import members_in_use


def made_in_double(optimizer: torch.optim.Optimizer) -> bool:
    """Tell, inside of a step, whether they are surely made of Python's numbers: by torch's own code, not compiled.

    Where the number of steps stays a tensor, as for a GPU's sake, they are made in float32.
    """
    return all(map(_is_plain, members_in_use(optimizer))) and not _is_compiled()


def _is_plain(optimizer: torch.optim.Optimizer) -> bool:
    # A scheduler wraps `step`, and leaves the module's name.
    of_torch = (getattr(optimizer.step, "__module__", None) or "").startswith("torch.optim.")
    on_tensors = (
        any(group.get(option) for option in _ON_TENSORS) or any(isinstance(b, Tensor) for b in group.get("betas", ()))
        for group in optimizer.param_groups
    )
    return of_torch and not any(on_tensors)


_ON_TENSORS = ("capturable", "fused", "differentiable")
"""Options under which the number of steps stays a tensor, or may."""


def _is_compiled() -> bool:
    """Tell whether the loop has compiled what makes the step: the caller runs inside of Dynamo's wrapper then."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    frame = inspect.currentframe()
    while dynamo is not None and frame is not None:
        code = frame.f_code
        if code.co_filename == dynamo.__file__ and not code.co_qualname.startswith("DisableContext."):
            return True
        frame = frame.f_back
    return False
