"""Stage `reference`: train the references and the twins that measure their noise floors."""

from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.containers import here_or_contained, image_of
from trainparity.pipeline.references import train_references
from trainparity.records import layout


def train() -> None:
    runs, settings = Path("runs"), params.load(Path("params.yaml"))
    environment = Environment.read(layout.environment(runs))
    train_references(settings, environment, runs=runs, data=Path("data/prepared"))


def main() -> None:
    # They all run on the accelerator, so one image serves them.
    here_or_contained(
        train, lambda settings: image_of(settings.reference_configuration(next(iter(settings.references))), settings)
    )
