"""Verdicts and distances for the tools that people watch trainings with: TensorBoard, MLflow, or any other writer."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from trainparity.errors import UserError
from trainparity.records.detail import Detail
from trainparity.records.verdict import SAME_TRAINING, Verdict
from trainparity.report.trend import over_floor


class Writer(Protocol):
    """What figures are written with; a tool is added by these two methods."""

    def scalar(self, name: str, value: float, step: int) -> None:
        """Write a figure of an optimizer step."""

    def text(self, name: str, text: str) -> None:
        """Write a sentence."""


def export(verdicts: Mapping[str, Verdict], details: Mapping[str, Mapping[str, Detail]], writer: Writer) -> None:
    """Write verdicts and distances.

    Args:
        verdicts: By the name of the pair, which every name of a figure begins with.
        details: The same pairs tensor by tensor, by model; without them no course over steps is written.
        writer: Where to.
    """
    for pair, verdict in verdicts.items():
        writer.text(f"{pair}/verdict", verdict.verdict)
        for name in ("reason", "cause", "explanation", "advice", "confirmation"):
            if text := getattr(verdict, name):
                writer.text(f"{pair}/{name}", text)
        last = max((worst.step for worst in verdict.worst), default=0)
        writer.scalar(f"{pair}/same training", float(verdict.verdict in SAME_TRAINING), last)
        for worst in verdict.worst:
            writer.scalar(f"{pair}/worst {worst.kind}, distance over floor", worst.distance_over_floor, worst.step)
        for model, detail in details.get(pair, {}).items():
            for strip in detail.strips:
                for step, value in zip(strip.steps, _largest(strip.distance, strip.floor), strict=True):
                    if value is not None:
                        writer.scalar(f"{'/'.join(filter(None, (pair, model, strip.kind)))}", value, step)


def _largest(distance: list[list[float | None]], floor: list[list[float | None]]) -> Iterator[float | None]:
    """Yield for each column the largest distance / floor; None where nothing is known."""
    for distances, floors in zip(zip(*distance, strict=True), zip(*floor, strict=True), strict=True):
        ratios = [over_floor(*pair) for pair in zip(distances, floors, strict=True)]
        yield max((ratio for ratio in ratios if ratio is not None), default=None)


class TensorBoard:
    """Writes event files; keeps no more digits than fp32 has, and infinity for 1e300."""

    def __init__(self, folder: Path) -> None:
        """Write into a folder, which `tensorboard --logdir` shows."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def scalar(self, name: str, value: float, step: int) -> None:
        """Write a figure of an optimizer step."""
        self.writer.add_scalar(name, value, step)

    def text(self, name: str, text: str) -> None:
        """Write a sentence."""
        self.writer.add_text(name, text)

    def close(self) -> None:
        """Write what is still held."""
        self.writer.close()


class MLflow:
    """Writes one run of the experiment `trainparity`: figures as metrics, sentences as tags."""

    def __init__(self, uri: str, name: str) -> None:
        """Begin a run of that name at a tracking server or store."""
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self.client, self.metric = MlflowClient(tracking_uri=uri), Metric
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        number = experiment.experiment_id if experiment else self.client.create_experiment(EXPERIMENT)
        self.run = self.client.create_run(number, run_name=name).info.run_id
        self.metrics: list[Metric] = []

    def scalar(self, name: str, value: float, step: int) -> None:
        """Keep a figure of an optimizer step."""
        self.metrics.append(self.metric(name.replace(",", ""), value, int(time.time() * 1000), step))

    def text(self, name: str, text: str) -> None:
        """Write a sentence."""
        self.client.set_tag(self.run, name, text)

    def close(self) -> None:
        """Write the figures, as many at a time as a server takes, and end the run."""
        for start in range(0, len(self.metrics), _AT_A_TIME):
            self.client.log_batch(self.run, metrics=self.metrics[start : start + _AT_A_TIME])
        self.client.set_terminated(self.run)


EXPERIMENT = "trainparity"
_AT_A_TIME = 1000


@contextmanager
def writers(tensorboard: Path | None, mlflow: str | None, name: str) -> Iterator[list[Writer]]:
    """Yield the writers that are wanted, and close them; `name` is that of MLflow's run.

    Raises:
        UserError: MLflow refuses the store, or its server can't be reached.
    """
    with ExitStack() as closing:
        opened: list[Writer] = []
        if tensorboard:
            opened.append(closing.enter_context(contextlib.closing(TensorBoard(tensorboard))))
        if mlflow:
            opened.append(closing.enter_context(_mlflow(mlflow, name)))
        yield opened


@contextmanager
def _mlflow(uri: str, name: str) -> Iterator[MLflow]:
    from mlflow.exceptions import MlflowException

    try:
        with contextlib.closing(MLflow(uri, name)) as writer:
            yield writer
    except MlflowException as error:
        raise UserError(f"--mlflow {uri}: {error}") from None
