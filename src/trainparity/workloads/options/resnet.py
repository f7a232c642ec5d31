"""Settings of `resnet`."""

from typing import Literal

from pydantic import Field

from trainparity.validation import Section

GROUPS = 8
"""Groups of channels that group normalisation has."""


class ResnetOptions(Section):
    """Settings of `resnet`; the defaults are the article's ResNet-18."""

    depth: Literal[18, 50, 101] = 18
    stem: Literal["cifar", "imagenet"] = "cifar"
    """`cifar`: a 3x3 convolution; `imagenet`: 7x7 with stride 2 and max-pooling, as in torchvision."""
    width: int = Field(default=64, ge=GROUPS, multiple_of=GROUPS)
    """Channels of the first stage, doubled in each further one: 64 is the article's, 8 trains on a laptop's CPU."""
    norm: Literal["batch", "group"] = "batch"
    """`batch`, as in the article, normalises over the micro-batch, which depends on how the global batch is cut;
    `group` (Wu and He, arXiv 1803.08494) over one sample, so that every cut is the same training."""
    augment: bool = True
    """Crop out of padding of an eighth of the edge, the article's 4 of 32 pixels, and flip half of all images."""
    classes: int = Field(default=10, ge=2)
