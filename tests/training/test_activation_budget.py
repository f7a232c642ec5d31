import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from trainparity.training.activation_budget import ActivationBudget, BlockCost, added_seconds, choose

CPU = torch.device("cpu")
MIB = 1 << 20
ROWS, WIDTH = 8192, 32
"""A float32 tensor of them takes a MiB."""


def model(count: int = 5) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh(), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH)
            )
            for _ in range(count)
        )
    )


def gradients_and_buffers(module: nn.Module, budget: ActivationBudget | None, step: int) -> list[Tensor]:
    torch.manual_seed(step)
    module.zero_grad()
    inputs = torch.randn(ROWS, WIDTH)
    if budget is None:
        loss = module(inputs).square().sum()
    else:
        with budget.forward_pass():
            loss = module(inputs).square().sum()
    loss.backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None] + [b.clone() for b in module.buffers()]


def test_the_training_is_the_same_to_the_last_bit_within_the_budget() -> None:
    for mib in (0, 6, 1000):
        plain, limited = model(), model()
        budget = ActivationBudget(list(limited), mib * MIB, CPU)
        for step in range(6):
            wanted, found = gradients_and_buffers(plain, None, step), gradients_and_buffers(limited, budget, step)
            assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True)), (mib, step)
        assert budget.decided
        assert budget.peak <= max(mib + 1, 2) * MIB, mib  # with the one that is being saved
        assert (budget.treatments == ["keep"] * 5) == (mib == 1000)


def test_what_it_decides_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 4 * MIB, CPU, name="limited")
    for step in range(6):
        gradients_and_buffers(limited, budget, step)
    assert "limited: 5 blocks save " in capsys.readouterr().err


def test_a_pass_without_gradients_saves_nothing() -> None:
    limited = model()
    budget = ActivationBudget(list(limited), 0, CPU)
    with torch.no_grad():
        limited(torch.randn(ROWS, WIDTH))
    assert budget.peak == 0


def test_parameters_keep_their_names() -> None:
    module = model()
    names = [name for name, _ in module.named_parameters()]
    ActivationBudget(list(module), 0, CPU)
    assert [name for name, _ in module.named_parameters()] == names


ALIKE = [BlockCost(saved=100, inputs=10, seconds=1.0)] * 10


def test_copies_that_the_computation_hides_are_preferred() -> None:
    chosen = choose(ALIKE, 400, bytes_per_s=200.0, beside=True)
    assert chosen == ["offload"] * 6 + ["keep"] * 4
    assert added_seconds(ALIKE, chosen, 200.0, beside=True) == 0


def test_slow_copies_give_way_to_computing_again() -> None:
    chosen = choose(ALIKE, 400, bytes_per_s=1.0, beside=True)
    assert "offload" not in chosen
    assert chosen == ["recompute"] * 7 + ["keep"] * 3  # the kept ones are free when backward reaches the others


def test_what_frees_most_in_a_second_is_computed_again_first() -> None:
    costs = [BlockCost(100, 10, 1.0), BlockCost(100, 10, 0.01), BlockCost(100, 10, 1.0)]
    assert choose(costs, 250, bytes_per_s=1.0, beside=True)[1] == "recompute"


def test_copies_take_part_where_they_hide_a_part() -> None:
    """6,000 bytes do not fit; the rest of the forward pass hides 2,700 of them."""
    costs = [BlockCost(saved=1000, inputs=10, seconds=1.0)] * 10
    chosen = choose(costs, 4000, bytes_per_s=300.0, beside=True)
    assert 0 < chosen.count("offload") < 6 and "recompute" in chosen


costs = st.lists(
    st.builds(
        lambda saved, share, seconds: BlockCost(saved, int(saved * share), seconds),
        st.integers(0, 1000),
        st.floats(0, 1),
        st.floats(0, 10),
    ),
    min_size=1,
    max_size=12,
)


@given(costs, st.integers(0, 5000), st.floats(1, 1e6), st.booleans())
def test_a_plan_fits_and_costs_no_more_than_moving_everything(
    blocks: list[BlockCost], budget: int, rate: float, beside: bool
) -> None:
    chosen = choose(blocks, budget, rate, beside=beside)
    stays = sum(
        {"keep": cost.saved, "offload": 0, "recompute": cost.inputs}[treatment]
        for cost, treatment in zip(blocks, chosen, strict=True)
    )
    assert stays <= budget
    everything = ["offload"] * len(blocks)
    added = [added_seconds(blocks, plan, rate, beside=beside) for plan in (chosen, everything)]
    assert added[0] <= added[1] + 1e-9
