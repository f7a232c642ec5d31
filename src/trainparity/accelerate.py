"""Recording in Accelerate, as a tracker: `Accelerator(log_with=RecordTracker("runs/a"))`."""

from pathlib import Path
from typing import Any

from torch import nn

from trainparity.extras import require
from trainparity.parity.arguments import is_number
from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder

require("accelerate")  # which says what to install
from accelerate.tracking import GeneralTracker  # noqa: E402


class RecordTracker(GeneralTracker):  # type: ignore[misc]  # Accelerate has no types
    """Records a run from `attach` to `accelerator.end_training()`; what `accelerator.log` gets makes its curve.

    tracker = RecordTracker("runs/a")
    accelerator = Accelerator(log_with=tracker)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.init_trackers("runs")
    tracker.attach(model, optimizer)
    """

    name = "trainparity"
    requires_logging_directory = False
    main_process_only = False  # every rank takes part in recording

    def __init__(self, folder: str | Path, **options: Any) -> None:
        """Record into `folder`; `options` are those of `trainparity.record`, such as `interval=1`."""
        super().__init__()
        self.folder, self.options = Path(folder), options
        self.recorder: Recorder | None = None

    @property
    def tracker(self) -> Recorder | None:
        """The Recorder, from `attach` on."""
        return self.recorder

    def attach(self, model: nn.Module, optimizer: Any) -> None:
        """Attach to what `accelerator.prepare` returned, on every rank, before the first step."""
        self.recorder = record(model, optimizer, self.folder, **self.options)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the configuration beside the verdict: values that JSON has."""
        plain = {name: value for name, value in values.items() if isinstance(value, str | int | float | bool | None)}
        self.options = self.options | {"settings": {**self.options.get("settings", {}), **plain}}

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Note figures of the current optimizer step; texts and other values that are no number are left out."""
        if self.recorder:
            self.recorder.log(**{name: value for name, value in values.items() if is_number(value)})

    def finish(self) -> None:
        """Write the trace."""
        if self.recorder:
            self.recorder.close()
