"""Stage `curves`: train the recipes of params.yaml's `curves` from several seeds, for their learning curves."""

from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.containers import here_or_contained, image_of_engine
from trainparity.launch.runs import run_seed
from trainparity.records import layout


def train() -> None:
    settings = params.load(Path("params.yaml"))
    environment = Environment.read(layout.environment(Path("runs")))
    assert settings.curves is not None  # else there is no such stage
    for reference in settings.curves.references:
        for seed in range(settings.curves.seeds):
            runs = layout.curves(Path("runs"))
            status = run_seed(settings, environment, reference, seed, runs=runs, data=Path("data/prepared"))
            print(f"{reference}, seed {seed}: {status.outcome}")


def main() -> None:
    here_or_contained(train, image_of_engine)
