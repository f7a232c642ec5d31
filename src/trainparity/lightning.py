"""Recording in Lightning: `Trainer(callbacks=[RecordCallback("runs/a")])`."""

from pathlib import Path
from typing import Any

from trainparity.attach.owners import beside, model_of
from trainparity.extras import require
from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder
from trainparity.parity.recording.unwrap import unwrap_optimizer

require("lightning")  # which says what to install
import lightning  # noqa: E402


class RecordCallback(lightning.Callback):
    """Records a run from the start of its training to the end, on every rank."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        """Record into `folder`; `options` are those of `trainparity.record`, such as `interval=1`."""
        self.folder, self.options = Path(folder), options
        self._recorders: list[Recorder] = []

    @property
    def recorder(self) -> Recorder | None:
        """That of the first optimizer, from the start of the training on: `log` notes figures of the current step."""
        return self._recorders[0] if self._recorders else None

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Attach to what the Trainer has prepared: with several optimizers, as a GAN's, to each and what it updates.

        The further ones are recorded into `models` of the folder, by the names of the parts that they update; `compare`
        judges all together.

        Raises:
            ValueError: two optimizers update the same parameters.
        """
        several = [unwrap_optimizer(one) for one in trainer.optimizers]
        parts = {part: name for name, part in pl_module.named_children()}
        for number, optimizer in enumerate(several, 1):
            others = beside(optimizer, several)
            if len(others) + 1 < len(several):
                raise ValueError(f"optimizer {number} of {len(several)} updates parameters that another updates too")
            model = model_of(optimizer, None, others) if others else pl_module
            name = {} if number == 1 else {"name": parts.get(model, f"optimizer-{number}")}
            self._recorders.append(record(model, optimizer, self.folder, **self.options | name))

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Write the steps that were made, as a `with` block does."""
        self._close()

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Write the trace."""
        self._close()

    def _close(self) -> None:
        for recorder in self._recorders:
            recorder.close()
