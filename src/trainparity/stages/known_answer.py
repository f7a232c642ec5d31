"""Stage `known-answer`: reproduce article B's published weights before our own verdicts are to be believed."""

from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.containers import here_or_contained, image_of_engine
from trainparity.pipeline.known_answer import read_claim, reproduce
from trainparity.records import layout
from trainparity.records.known_answer import STUDY


def train() -> None:
    published = read_claim("B1", STUDY / "claims.yaml")
    settings = params.load(STUDY / "params.yaml")
    environment = Environment.read(layout.environment(Path("runs")))
    answer = reproduce("B1", published, settings, environment, Path("runs/known-answer"))
    answer.write(Path("runs/known-answer/result.json"))
    print(f"article B's published weights: {'reproduced' if answer.reproduced else 'NOT reproduced'}")


def main() -> None:
    here_or_contained(train, image_of_engine)
