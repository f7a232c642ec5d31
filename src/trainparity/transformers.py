"""Recording in Transformers: `Trainer(..., callbacks=[RecordCallback("runs/a")])`."""

from pathlib import Path
from typing import Any

from trainparity.extras import require
from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder

require("transformers")  # which says what to install
from transformers import TrainerCallback  # noqa: E402


class RecordCallback(TrainerCallback):
    """Records a run from the start of its training to the end, on every rank."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        """Record into `folder`; `options` are those of `trainparity.record`, such as `interval=1`."""
        self.folder, self.options = Path(folder), options
        self.recorder: Recorder | None = None
        """From the start of the training on: `log` notes figures of the current step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Attach to what the Trainer has prepared."""
        self.recorder = record(parts["model"], parts["optimizer"], self.folder, **self.options)

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Write the trace."""
        if self.recorder:
            self.recorder.close()
