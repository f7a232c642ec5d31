"""A workload that reads a file as late as in its steps."""

from pathlib import Path

from torch import Tensor, nn

from tests.support.misbehaving import Misbehaving
from trainparity.workloads import Batch


class Reading(Misbehaving):
    """Multiplies the loss with what `factor.txt` says."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return float(Path("factor.txt").read_text(encoding="utf-8")) * super().loss(model, batch)
