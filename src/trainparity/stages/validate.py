"""Stage `validate`: stop on a bad params.yaml, a bad claims.yaml or a place that is taken, before anything runs."""

from pathlib import Path

from trainparity import params, workloads
from trainparity.claims import schema
from trainparity.pipeline.places import VALID, check_first
from trainparity.records.files import write_text


def main() -> None:
    settings = params.load(Path("params.yaml"))
    workloads.check(settings.workload.name, settings.workload.options)
    if (claims := Path("claims.yaml")).exists():
        schema.load(claims)
    check_first()
    # Always the same: a valid change must not invalidate what does not depend on it.
    write_text(VALID, "params.yaml is valid\n")
