"""What the callbacks say of a wrong use; tests/examples runs them in real loops."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace

lightning = pytest.importorskip("lightning")


class Gan(lightning.LightningModule):
    """Two halves with an optimizer each, and the generator in two parts."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.automatic_optimization, self.lr = False, lr
        self.discriminator = nn.Linear(8, 1)
        self.encoder, self.decoder = nn.Linear(4, 16), nn.Linear(16, 8)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        real, noise = batch
        of_d, of_g = self.optimizers()
        fakes = self.decoder(torch.relu(self.encoder(noise)))
        of_d.zero_grad()
        softplus = nn.functional.softplus
        self.manual_backward(
            (softplus(-self.discriminator(real)) + softplus(self.discriminator(fakes.detach()))).mean()
        )
        of_d.step()
        of_g.zero_grad()
        self.manual_backward(softplus(-self.discriminator(fakes)).mean())
        of_g.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        generator = [*self.encoder.parameters(), *self.decoder.parameters()]
        return [torch.optim.Adam(self.discriminator.parameters(), 1e-3), torch.optim.Adam(generator, self.lr)]


def fit(folder: Path, lr: float = 1e-3, twin: int = 0) -> None:
    from trainparity.lightning import RecordCallback

    lightning.seed_everything(0, verbose=False)
    loader = DataLoader(TensorDataset(torch.randn(40, 8), torch.randn(40, 4)), 8)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    callbacks = [RecordCallback(folder, twin=twin)]
    lightning.Trainer(accelerator="cpu", max_epochs=1, callbacks=callbacks, **quiet).fit(Gan(lr), loader)


def test_several_optimizers_are_recorded_each_with_what_it_updates(tmp_path: Path) -> None:
    fit(tmp_path / "a")
    fit(tmp_path / "a", twin=1)
    fit(tmp_path / "again")
    fit(tmp_path / "faster", lr=2e-3)
    assert Trace.load(tmp_path / "a").layout.steps == [0, 1, 2, 3, 4]
    assert [*Trace.load(tmp_path / "a" / "models" / "optimizer-2").layout.parameters] == [
        f"Linear_{part}.{name}" for part in (0, 1) for name in ("weight", "bias")
    ]
    assert compare_folders(tmp_path / "a", tmp_path / "again").verdict == "bitwise"
    found = compare_folders(tmp_path / "a", tmp_path / "faster")
    assert (found.verdict, found.cause) == ("different", "learning-rate"), found.explanation


def test_optimizers_that_share_parameters_are_refused(tmp_path: Path) -> None:
    from trainparity.lightning import RecordCallback

    model = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2)]
    with pytest.raises(ValueError, match="optimizer 1 of 2 updates parameters that another updates too"):
        RecordCallback(tmp_path).on_train_start(cast(Any, SimpleNamespace(optimizers=optimizers)), cast(Any, model))


def test_a_training_that_fails_leaves_the_steps_that_it_made(tmp_path: Path) -> None:
    from trainparity.lightning import RecordCallback

    model, data = nn.Linear(2, 1), torch.ones(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    callback, trainer = RecordCallback(tmp_path), cast(Any, SimpleNamespace(optimizers=[optimizer]))
    callback.on_train_start(trainer, cast(Any, model))
    model(data).sum().backward()
    optimizer.step()
    callback.on_exception(trainer, cast(Any, model), KeyboardInterrupt())
    assert Trace.load(tmp_path).layout.steps == [0]


def test_a_text_that_is_logged_is_left_out_of_the_curve(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from trainparity.accelerate import RecordTracker

    model, data = nn.Linear(2, 1), torch.ones(4, 2)
    optimizer, tracker = torch.optim.SGD(model.parameters(), lr=0.1), RecordTracker(tmp_path)
    tracker.attach(model, optimizer)
    tracker.log({"loss": 0.5, "phase": "warm-up", "table": {"a": 1}})
    model(data).sum().backward()
    optimizer.step()
    tracker.finish()
    assert (tmp_path / "curve.csv").read_text() == "step,name,value\n0,loss,0.5\n"
