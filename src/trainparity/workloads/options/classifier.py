"""Settings of `classifier`."""

from typing import Literal

from pydantic import Field

from trainparity.validation import Section


class ClassifierOptions(Section):
    """Settings of `classifier`."""

    model: Literal["swin-t", "swin-b", "convnext-l"] = "swin-t"
    scale: Literal["smoke", "laptop", "article"] = "laptop"
    """`article` is the published size, `laptop` and `smoke` train on a CPU."""
    image_size: int | None = Field(default=None, ge=1)
    """Edge in pixels that images are resized to, on the model's device; null keeps them."""
    stochastic_depth: float = Field(default=0.0, ge=0, lt=1)
    """How often the last block is left out, earlier ones in proportion; torchvision's own are 0.2 for Swin-T and 0.5
    for the others. It is drawn inside the model and so depends on how the batch is cut: with more than 0, runs that
    cut it otherwise are `different`, with the cause `randomness`."""
    classes: int = Field(default=10, ge=2)
