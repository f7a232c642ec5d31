"""Recording in Lightning: `Trainer(callbacks=[RecordCallback("runs/a")])`."""

from pathlib import Path
from typing import Any

import lightning

from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder


class RecordCallback(lightning.Callback):
    """Records a run from the start of its training to the end, on every rank."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        """Record into `folder`; `options` are those of `trainparity.record`, such as `interval=1`."""
        self.folder, self.options = Path(folder), options
        self.recorder: Recorder | None = None
        """From the start of the training on: `log` notes figures of the current step."""

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Attach to what the Trainer has prepared.

        Raises:
            ValueError: the module trains with several optimizers; record each with `trainparity.record`.
        """
        if len(trainer.optimizers) != 1:
            number = len(trainer.optimizers)
            raise ValueError(f"{number} optimizers: call trainparity.record for each of them in on_train_start")
        self.recorder = record(pl_module, trainer.optimizers[0], self.folder, **self.options)

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Write the steps that were made, as a `with` block does."""
        if self.recorder:
            self.recorder.close()

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Write the trace."""
        if self.recorder:
            self.recorder.close()
