"""Stage `validate`: stop on a bad params.yaml, or a study's bad claims.yaml, before anything runs."""

from pathlib import Path

from trainparity import params, workloads
from trainparity.claims import schema
from trainparity.records.files import write_text


def main() -> None:
    settings = params.load(Path("params.yaml"))
    workloads.check(settings.workload.name, settings.workload.options)
    if (claims := Path("claims.yaml")).exists():
        schema.load(claims)
    # Always the same: a valid change must not invalidate what does not depend on it.
    write_text(Path("runs/params-valid.txt"), "params.yaml is valid\n")
