"""Stage `curves`: train the recipes of params.yaml's `curves` from several seeds, for their learning curves."""

from itertools import product
from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.containers import here_or_contained, image_of_engine
from trainparity.launch.runs import run_seed
from trainparity.launch.warm import warm_workers
from trainparity.records import layout


def train() -> None:
    settings = params.load(Path("params.yaml"))
    environment = Environment.read(layout.environment(Path("runs")))
    assert settings.curves is not None  # else there is no such stage
    runs = layout.curves(Path("runs"))
    with warm_workers():
        for reference, seed in product(settings.curves.references, range(settings.curves.seeds)):
            status = run_seed(settings, environment, reference, seed, runs=runs, data=Path("data/prepared"))
            print(f"{reference}, seed {seed}: {status.outcome}")


def main() -> None:
    here_or_contained(train, image_of_engine)
