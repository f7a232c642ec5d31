"""Stage `claims`: measure every claim of a study's claims.yaml."""

from pathlib import Path

from trainparity import params
from trainparity.claims import schema
from trainparity.claims.evaluate import evaluate
from trainparity.claims.study import Study
from trainparity.environment import Environment
from trainparity.records import layout


def main() -> None:
    study = Study(params.load(Path("params.yaml")), Path())
    claims = schema.load(Path("claims.yaml"))
    report = evaluate(Path.cwd().name, claims, study, Environment.read(layout.environment(Path("runs"))))
    report.write(Path("reports/claims.json"))
    for result in report.results:
        print(f"{result.name}: {result.verdict}: {result.measured or result.reason}")
