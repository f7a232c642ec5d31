"""Images as numbers that networks take."""

import torch
from torch import Tensor


def centred(images: Tensor) -> Tensor:
    """Return images of 0 to 255 as float32 from -1 to 1, a new tensor.

    In place: that needs memory once, and fresh memory costs a CPU more than the arithmetic.
    """
    return images.to(torch.float32, copy=True).div_(127.5).sub_(1)
