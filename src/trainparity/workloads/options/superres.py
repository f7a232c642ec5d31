"""Settings of `superres`."""

from typing import Literal

from pydantic import Field

from trainparity.validation import Section

CELL = 4
"""The network works on cells of 4x4 pixels."""


class SuperResOptions(Section):
    """Settings of `superres`."""

    scale: Literal["smoke", "laptop", "article"] = "smoke"
    """A step of `smoke` takes milliseconds; `laptop` is for a laptop's CPU; `article` is the published size."""
    upscale: Literal[2, 4] = 4
    """How many times larger the network makes an image."""
    crop: int = Field(default=32, ge=8, multiple_of=CELL)
    """Edge in pixels of the square that is cut, at a random place, out of each image."""
    activation: Literal["function", "recomputed"] = "function"
    """TanhExp as the article's autograd function, or recomputed in the backward pass; their values are equal."""
    global_residual: bool = False
    """Learn the difference from the bicubic image (arXiv 1511.04587); the article's network learns the whole image."""
