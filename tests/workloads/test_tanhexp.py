import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainparity.workloads.tanhexp import tanhexp, tanhexp_recomputed

Form = Callable[[Tensor], Tensor]
FORMS = pytest.mark.parametrize("form", [tanhexp, tanhexp_recomputed])
POINTS = torch.linspace(-30, 30, 601, dtype=torch.float64)


def value_and_gradient(form: Form, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y = form(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), gradient


@FORMS
def test_it_is_the_papers_function(form: Form) -> None:
    expected = [x if x > 20 else x * math.tanh(math.exp(x)) for x in POINTS.tolist()]
    torch.testing.assert_close(form(POINTS), torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0)


@FORMS
def test_its_gradient_is_its_derivative(form: Form) -> None:
    assert torch.autograd.gradcheck(form, POINTS[::7].clone().requires_grad_())


@FORMS
def test_its_gradient_is_the_articles_closed_form(form: Form) -> None:
    def derivative(x: float) -> float:
        tanh = math.tanh(math.exp(x))
        return 1.0 if x > 20 else tanh - x * math.exp(x) * (tanh**2 - 1)

    _, gradient = value_and_gradient(form, POINTS)
    expected = torch.tensor([derivative(x) for x in POINTS.tolist()], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_both_forms_are_equal(dtype: torch.dtype) -> None:
    x = POINTS.to(dtype)
    (value, gradient), (other, other_gradient) = (value_and_gradient(f, x) for f in (tanhexp, tanhexp_recomputed))
    assert torch.equal(value, other)
    torch.testing.assert_close(gradient, other_gradient)


@FORMS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_large_inputs_do_not_overflow(form: Form, dtype: torch.dtype) -> None:
    far = [11.0, 19.0, 20.0, 21.0, 89.0, 710.0, 60000.0, torch.finfo(dtype).max]
    x = torch.tensor(far, dtype=dtype)  # e^x overflows from 11, 89 or 710 on
    value, gradient = value_and_gradient(form, x)
    assert torch.equal(value, x) and torch.equal(gradient, torch.ones_like(x))
    value, gradient = value_and_gradient(form, -x)
    assert value.isfinite().all() and gradient.isfinite().all()


@FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_input_is_kept_for_backward(form: Form, dtype: torch.dtype) -> None:
    x = torch.randn(1000, dtype=dtype).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):  # type: ignore[func-returns-value]
        y = form(x)
    [only] = [tensor for tensor in kept if tensor.numel()]
    assert only.data_ptr() == x.data_ptr() and only.dtype == dtype
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype


@FORMS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_compiles_without_a_graph_break(form: Form, dtype: torch.dtype) -> None:
    x = POINTS.to(dtype)
    compiled = torch.compile(form, fullgraph=True, backend="aot_eager")
    value, gradient = value_and_gradient(compiled, x)
    expected, expected_gradient = value_and_gradient(form, x)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient)
