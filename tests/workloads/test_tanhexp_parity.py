"""A gradient that is lost without an error is a `different` training, whatever loses it."""

import pytest
import torch

from tests.support.lost_gradient import FORMS
from tests.support.runs import Reference, configuration, prepared, train


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("tanhexp")
    return Reference(
        folder, prepared(folder), workload="tests.support.lost_gradient:TanhexpMlp", options={"form": "right"}
    )


def test_a_gradient_lost_in_a_function_is_seen_in_every_version_of_torch(reference: Reference) -> None:
    wrong = reference.candidate("wrong", configuration(), options={"form": "returned-twice"})
    result = reference.judge(train(wrong))
    assert (result.verdict, result.step) == ("different", 0)
    assert result.tensor == "gradient 1.bias"
    assert result.evidence


@pytest.mark.parametrize("form", ["right", "needless-conversion"])
def test_a_compiled_function_is_the_same_training_just_where_its_gradient_is_right(
    reference: Reference, form: str
) -> None:
    x = torch.linspace(-2, 2, 9).requires_grad_()
    torch.compiler.reset()
    eager, compiled = (
        torch.autograd.grad(f(x).sum(), x)[0] for f in (FORMS["right"], torch.compile(FORMS[form], backend="aot_eager"))
    )
    run = train(reference.candidate(f"compiled-{form}", configuration(compile="default"), options={"form": form}))
    right = torch.allclose(eager, compiled)
    assert right or not compiled.any()
    assert reference.judge(run).verdict in (("bitwise", "equivalent") if right else ("different",))
    assert right or form != "right"
