"""`<run>/state/status.json`: what ran, or why it did not."""

import math
from typing import Literal

from pydantic import field_validator

from trainparity.records.base import Record


class Status(Record):
    """What a run was, and whether it trained. Deterministic: no times, no paths."""

    run: str
    """A configuration's name, or `reference-<entry of references>`."""
    status: Literal["trained", "skipped", "failed"]
    """`failed` is a crash."""
    reason: str | None = None
    """Why it was skipped or failed."""
    remedy: str | None = None
    """What to do about it."""
    device: str | None = None
    """cpu, mps or cuda; null if it could not be resolved."""
    emulated: str | None = None
    """What this machine only imitates (the timing means nothing then); null if nothing."""
    strategy: str
    """`single`, `data_parallel`, `ddp` or `fsdp`."""
    world_size: int
    """Ranks (`ddp`, `fsdp`) or replicas (`data_parallel`)."""
    accumulation_steps: int
    """Micro-batches that one rank accumulates per optimizer step."""
    precision: str
    """`fp64`, `fp32`, `tf32`, `bf16` or `fp16`."""
    compile: str
    """torch.compile's mode, or `none`."""
    offload: str
    """What waits in host memory: `none`, `parameters`, `activations` or `both`."""
    steps: int = 0
    """Optimizer steps of the parity phase."""
    loss: float | None = None
    """Mean loss of the parity phase's last ten steps; null unless trained and finite."""

    @field_validator("loss")
    @classmethod
    def _finite(cls, loss: float | None) -> float | None:
        """Write a diverged run's NaN or infinity, which JSON has not, as null."""
        return loss if loss is not None and math.isfinite(loss) else None

    @property
    def outcome(self) -> str:
        """What became of the run, and why if it did not train."""
        return f"{self.status}: {self.reason}" if self.reason else self.status

    @property
    def ending(self) -> str:
        """The same as a sentence about the run: `mps was skipped: no Apple GPU here`, `ddp failed: killed`."""
        return f"{self.run} {'was ' if self.status == 'skipped' else ''}{self.outcome}"
