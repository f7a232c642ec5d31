"""The interface of a workload: model, loss and randomness. It knows nothing of ranks, devices or steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from trainparity.validation import Section
from trainparity.workloads.randomness import SampleRandomness

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

Batch = dict[str, Tensor]
"""Tensors by name, each [B, ...]; `samples` holds the B samples' indices in the dataset (int64)."""


class NoOptions(Section):
    """The options of a workload that takes none."""


class Workload(ABC):
    """Subclass this to bring your own model; give it in params.yaml as `package.module:Class`."""

    Options: ClassVar[type[Section]] = NoOptions
    """What `workload.options` may hold; pydantic validates it."""

    def __init__(self, options: Section) -> None:
        self.options = options

    @abstractmethod
    def build_model(self, sample: Batch) -> nn.Module:
        """Build the model with its initial weights, on the CPU.

        `sample` is a batch of one, so that the model can fit the data's shape. The global random
        generator is seeded before the call: use it for the initial weights.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss *summed* over the batch's samples: a scalar.

        Never its mean: the training loop divides once, by the global batch's `count`, which is what
        makes every way to cut the batch the same training.
        """

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return class scores [B, classes] of a batch as the dataset has it, nothing drawn.

        A classifier overrides it, and is then scored on the samples held out (`train.holdout`).
        """
        raise NotImplementedError

    def count(self, batch: Batch) -> int:
        """Return what the summed loss is divided by: samples; override it to count tokens, say."""
        return len(batch["samples"])

    def data(self) -> Batch | None:
        """Return the whole dataset, tensors [N, ...] by name, for `dataset: {name: own}`; None: it brings none."""
        return None

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer | None:
        """Make the optimizer over the parameters of a model that is already distributed; None: params.yaml's."""
        return None

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        """Draw the batch's randomness (noise, augmentation) on the CPU; it joins the batch before `loss`.

        What bears the name of a tensor of the batch takes its place, as cropped images do.

        It must come from `randomness` alone, which depends on seed, epoch and sample only. What torch
        draws inside the model (dropout) depends on how the batch is cut.
        """
        return {}

    def picture(self, model: nn.Module, samples: Batch) -> Tensor | None:
        """Return an image, uint8 [C, H, W], of what a trained model makes of the dataset's samples; None: nothing."""
        return None

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the model's parts worth sharding or compiling apart; none: the model is one part."""
        return ()

    def tensor_parallel_plan(self, model: nn.Module) -> Mapping[str, "ParallelStyle"]:
        """Return how modules are split over the ranks of `tensor_parallel`, by their names in the model.

        As `torch.distributed.tensor.parallel.parallelize_module` takes it; a module that is not named is whole on every
        rank. Nothing: the workload has no such plan, and cannot be trained so.
        """
        return {}
