"""Faults that people ask about in forums, each of which leaves little of one step in common with the right loop."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.parity.test_loops import BATCH, DATA, LABELS, Loop, judged, variant


class Classifier(Loop):
    """A classifier with dropout."""

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 4))

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.model(data), labels, reduction="none")


def new_head(self: Loop) -> None:
    """Replace a layer that the optimizer holds already."""
    assert isinstance(self.model, nn.Sequential)
    self.model[3] = nn.Linear(12, 4)


def look(self: Loop, step: int) -> None:
    """Log a loss, and forget the evaluation mode."""
    if step == 2:
        functional.cross_entropy(self.model(DATA[-BATCH:]), LABELS[-BATCH:])


def look_and_put_back(self: Loop, step: int) -> None:
    with torch.random.fork_rng():
        look(self, step)


FAULTS = {
    "a new head": ("parameters-not-updated", {"after_optimizer": new_head}),
    "two updates": ("missing-backward", {"updates": 2}),
    "an update before backward": ("missing-backward", {"updates_before": 1, "updates": 0}),
    "a look aside": ("randomness", {"between": look}),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_fault_is_named_in_whichever_run(fault: str, swapped: bool, tmp_path: Path) -> None:
    cause, changes = FAULTS[fault]
    runs = (Classifier(), variant(Classifier, **changes))
    found = judged(tmp_path, *(reversed(runs) if swapped else runs))
    assert (found.verdict, found.cause) == ("different", cause), found.explanation
    if cause != "randomness":
        assert str(tmp_path / ("a" if swapped else "b")) in str(found.explanation)


def test_a_pass_aside_that_puts_the_generator_back_changes_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, Classifier(), variant(Classifier, between=look_and_put_back)).verdict == "bitwise"
