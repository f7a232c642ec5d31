"""`<run>/state/status.json`: what ran, or why it did not."""

from typing import Literal

from trainparity.records.base import Record


class Status(Record):
    """What a run was, and whether it trained. Deterministic: no times, no paths."""

    run: str
    status: Literal["trained", "skipped", "failed"]
    reason: str | None = None
    """Why it was skipped or failed."""
    remedy: str | None = None
    """What to do about it."""
    device: str | None = None
    """cpu, mps or cuda; null if it could not be resolved."""
    emulated: str | None = None
    """What this machine only imitates (the timing means nothing then); null if nothing."""
    strategy: str
    world_size: int
    accumulation_steps: int
    precision: str
    compile: str
    offload: str
    steps: int = 0
    """Optimizer steps of the parity phase."""
    loss: float | None = None
    """Mean loss of the parity phase's last ten steps."""

    @property
    def outcome(self) -> str:
        """What became of the run, and why if it did not train."""
        return f"{self.status}: {self.reason}" if self.reason else self.status
