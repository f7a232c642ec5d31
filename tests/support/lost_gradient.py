"""TanhExp in two forms that lose its gradient, and a workload with them.

torch 2.11 compiles `NeedlessConversion` to what `ReturnedTwice` is: one tensor that is two outputs of a Function.
Autograd adds the gradient to the second of the two, and the first gets zeros, without an error or a warning.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tests.support.mlp import Mlp, MlpOptions
from trainparity.workloads import Batch
from trainparity.workloads.tanhexp import tanhexp


class NeedlessConversion(torch.autograd.Function):
    """Right when it runs eagerly; its last operation returns the tensor that it gets."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x * x.exp().tanh()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        tanh = x.exp().tanh()
        return gradient * (tanh - x * x.exp() * (tanh.square() - 1))


class ReturnedTwice(NeedlessConversion):
    """Wrong in every version of torch, compiled or not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        ctx.save_for_backward(x)
        y = x * x.exp().tanh()
        return y, y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, other: Tensor) -> Tensor:  # type: ignore[override]
        return NeedlessConversion.backward(ctx, gradient)


def needless_conversion(x: Tensor) -> Tensor:
    y: Tensor = NeedlessConversion.apply(x)
    return y


def returned_twice(x: Tensor) -> Tensor:
    y: Tensor = ReturnedTwice.apply(x)[0]
    return y


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "right": tanhexp,
    "needless-conversion": needless_conversion,
    "returned-twice": returned_twice,
}


class Activation(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        return FORMS[self.form](x)


class TanhexpOptions(MlpOptions):
    form: Literal["right", "needless-conversion", "returned-twice"]


class TanhexpMlp(Mlp):
    """A classifier of the digits with TanhExp between its two layers."""

    Options = TanhexpOptions
    options: TanhexpOptions

    def build_model(self, sample: Batch) -> nn.Module:
        inputs, hidden = sample["images"][0].numel(), self.options.hidden
        return nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, hidden), Activation(self.options.form), nn.Linear(hidden, 10)
        )
