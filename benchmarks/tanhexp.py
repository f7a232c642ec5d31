"""TanhExp fused by torch.compile beside the article's `autograd.Function`: time, what is saved for backward, errors.

Both save x alone. Far from 0 e^x overflows, where the article's formula gives NaN in backward;
ours equals x and 1, or 0.
"""

import statistics
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from pairs import Target, exactly, figures, take_turns
from results_file import save
from torch import Tensor

from trainparity.report.speedup import Ratio
from trainparity.workloads.tanhexp import tanhexp, tanhexp_recomputed

Activation = Callable[[Tensor], Tensor]
FAR = (20.0, 50.0, 88.0, 89.0, 1e3, 1e10, 3e38)
NAMES = ("function", "function, compiled", "recomputed, compiled")


class _Article(torch.autograd.Function):
    """The formula as the article writes it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.tanh(torch.exp(x))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        exponential = torch.exp(x)
        tanh = torch.tanh(exponential)
        return gradient * (tanh - x * exponential * (tanh.square() - 1))


def main(
    steps: Annotated[int, typer.Option(min=6)] = 100,
    elements: Annotated[int, typer.Option(min=1)] = 1 << 20,
    compiled: Annotated[bool, typer.Option(help="Compile; without, the forms run eagerly.")] = True,
) -> None:
    """Measure, print and write benchmarks/results/tanhexp-<device>.json."""
    torch.set_num_threads(1)
    through = torch.compile if compiled else lambda form: form
    forms: dict[str, Activation] = dict(
        zip(NAMES, (tanhexp, through(tanhexp), through(tanhexp_recomputed)), strict=True)
    )
    x = torch.randn(elements, requires_grad=True)
    article, *others = take_turns([lambda f=f: _step(f, x) for f in (_Article.apply, *forms.values())], steps)
    found = {
        name: figures(times, article)
        | {"saved_over_x": _saved(form, x) / x.nbytes, "largest_error": _error(form)}
        for (name, form), times in zip(forms.items(), others, strict=True)
    }  # fmt: skip
    result = {"steps": steps, "elements": elements, "article_ms": 1e3 * statistics.median(article), "forms": found}
    print(result)
    print(save("tanhexp", result, _targets(found)))


def _step(form: Activation, x: Tensor) -> None:
    x.grad = None
    form(x).sum().backward()


def _saved(form: Activation, x: Tensor) -> int:
    """Return the bytes that are kept for backward, each storage once."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        form(x)
    return sum(kept.values())


def _error(form: Activation) -> float:
    """Return the largest relative error far from 0, of value and derivative; infinite where one is not finite."""
    x = torch.tensor([*FAR, *(-value for value in FAR)], requires_grad=True)
    y = form(x)
    y.sum().backward()
    assert x.grad is not None
    far, y = x.detach(), y.detach()
    right_y, right_grad = torch.where(far > 0, far, far * far.exp()), torch.where(far > 0, 1.0, (1 + far) * far.exp())
    errors = [(y - right_y).abs() / right_y.abs().clamp(min=1e-30), (x.grad - right_grad).abs()]
    return max(float(torch.nan_to_num(error, nan=float("inf")).max()) for error in errors)


def _targets(found: dict[str, dict[str, float]]) -> list[Target]:
    name = min(found, key=lambda name: found[name]["ratio"])
    best = found[name]
    return [
        Target(
            name="TanhExp",
            what=f"forward and backward of our fastest form ({name}) over the article's Function, eager",
            found=Ratio(best["ratio"], best["low"], best["high"]),
            at_most=0.6,
            limited_by="exp and tanh themselves, which one thread computes either way",
        ),
        Target(
            name="TanhExp, bytes saved",
            what="bytes that the same form keeps for backward over those of x",
            found=exactly(best["saved_over_x"]),
            at_most=1.0,
            limited_by="a form that keeps intermediate values",
        ),
        Target(
            name="TanhExp, error far from 0",
            what=f"largest relative error of value and derivative for x from {FAR[0]:g} to {FAR[-1]:g} and -x",
            found=exactly(best["largest_error"]),
            at_most=1e-5,
            limited_by="e^x, which overflows",
        ),
    ]


if __name__ == "__main__":
    typer.run(main)
