"""Article B's linear model, whose final weights were published: the known answer."""

import torch
from torch import Tensor, nn

from trainparity.validation import ParamsError
from trainparity.workloads.base import Batch, Workload
from trainparity.workloads.options.toy_linear import ToyLinearOptions


class ToyLinear(Workload):
    """`Linear(d, 1, bias=False)`, all weights 1; the loss is the sum of the outputs.

    Summed per device and averaged over devices, the article's loss is `samples_per_device` times the mean
    over the global batch, which is how it is written here: independent of the number of devices.
    """

    Options = ToyLinearOptions
    options: ToyLinearOptions

    def build_model(self, sample: Batch) -> nn.Module:
        """Build the layer for `images` of shape [B, d]."""
        if sample["images"].ndim != 2:
            shape = list(sample["images"].shape[1:])
            raise ParamsError(
                f"toy-linear trains on rows of numbers, and a sample here has the shape {shape}; a dataset of such "
                "rows is {name: fake, shape: [8], size: 64}"
            )
        model = nn.Linear(sample["images"].shape[1], 1, bias=False)
        nn.init.ones_(model.weight)
        return model

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Sum the outputs, times `samples_per_device`."""
        output: Tensor = model(batch["images"])
        loss: Tensor = self.options.samples_per_device * output.sum(dtype=torch.float32)
        return loss
