"""Windows and seeds of a recording session."""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import nn

from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.session import Plan, Session
from trainparity.parity.recording.watch import StepWatch
from trainparity.records.base import RecordError


def session(**plan: object) -> Session:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return Session(StepWatch(model, optimizer, sketch_size=8), Plan(**plan))  # type: ignore[arg-type]


def train(session: Session, steps: int, scale: float = 1.0) -> None:
    model, optimizer = session.watch.model, session.watch.optimizer
    with closing(session):
        for step in range(steps):
            session.start(step)
            optimizer.zero_grad()
            (model(torch.ones(3, 4)).square().sum() * scale).backward()
            optimizer.step()
            session.finish(lambda: torch.tensor(0.0))


def test_a_run_that_follows_starts_each_window_from_the_kept_state_and_its_twin_half_an_ulp_away(
    tmp_path: Path,
) -> None:
    reference, other = session(window=2, keep=tmp_path), session(window=2, follow=tmp_path)
    twin = session(window=2, follow=tmp_path, twin=1)
    train(reference, 6)
    train(other, 6, scale=2)
    train(twin, 6, scale=2)
    starts = [trace.arrays["start/sketch"] for s in (reference, other, twin) if (trace := s.trace({}))]
    assert [torch.equal(starts[0][i], starts[1][i]) for i in range(6)] == [True, False] * 3
    apart = torch.linalg.vector_norm(starts[2] - starts[0], dim=2) / torch.linalg.vector_norm(starts[0], dim=2)
    assert (apart[::2] > 2**-26).all() and (apart[::2] < 2**-23).all()


def test_a_twin_that_is_moved_in_a_closure_has_no_part_of_that_in_its_update() -> None:
    """As Lightning calls the model from inside of the optimizer's step: autocast shows itself there."""
    twin = session(twin=1)
    model, optimizer = twin.watch.model, twin.watch.optimizer
    optimizer.param_groups[0]["params"] = [model.bias]

    def closure() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        return loss.detach()

    with closing(twin):
        before = model.get_parameter("weight").clone()
        twin.start(0)
        optimizer.step(closure)
        twin.finish(lambda: torch.tensor(0.0))
    arrays = twin.stacked()
    assert (model.get_parameter("weight") - before).norm() > 1e-4
    update = (arrays["weight/sketch"] - arrays["start/sketch"])[0]
    assert (update != 0).any(1).tolist() == [False, True]


def test_a_window_whose_state_is_missing_is_an_error_unless_the_followed_run_had_ended(tmp_path: Path) -> None:
    train(session(window=2, keep=tmp_path), 4)
    train(session(window=2, follow=tmp_path), 8)
    (tmp_path / "step-000002").rename(tmp_path / "step-000006")
    with pytest.raises(RecordError, match="step-000002: no such folder, though later windows"):
        train(session(window=2, follow=tmp_path), 4)


def test_seeds_depend_on_every_number_and_their_order() -> None:
    seeds = [derived_seed(*numbers) for numbers in ((), (0,), (0, 0), (0, 1), (1, 0), (-1,), (2**63,), (1, 2, 3))]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**63 for seed in seeds)
    assert derived_seed(1, 2, 3) == 8119519447357249846
