"""Sums over the samples of a pass."""

import torch

from trainparity.parity.recording import stacks
from trainparity.parity.recording.later import Later
from trainparity.parity.recording.passes import Pass
from trainparity.parity.recording.sketch import Sketcher


def test_equal_rows_of_samples_do_not_cancel() -> None:
    """The gradient of a mean absolute error is one number for all samples that lie on one side."""
    for count in range(2, 40, 2):
        found = Pass(training=True, state=0, evaluating=torch.zeros(1, dtype=torch.bool))
        found.of(torch.arange(count))
        sketches = Later(stacks.sketches(Sketcher(64)))
        assert found.see_tensor("layer", torch.ones(count, 2000), sketches, None)
        sketches.finish()
        assert float(found.activations["layer"].norm()) > 1e-4 * 2000**0.5, count


def test_a_pass_that_is_looked_at_time_first_stays_that_of_another_loss() -> None:
    found = Pass(training=True, state=0, evaluating=torch.zeros(1, dtype=torch.bool))
    found.given_by_another = True
    turned = found.turned(torch.arange(4), None)
    turned.backwards.add(1)
    assert turned.is_of_another_loss({1, 2}) and not turned.is_of_another_loss({2})
