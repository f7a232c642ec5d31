"""A published result computed again: what our verdicts are worth if we can't reproduce it, nothing."""

from pathlib import Path

import numpy as np

from trainparity.claims.quantities import Weights
from trainparity.claims.schema import load as load_claims
from trainparity.claims.weights import final_weights
from trainparity.environment import Environment
from trainparity.errors import UserError
from trainparity.launch.runs import run_configuration, run_reference
from trainparity.params import Params
from trainparity.pipeline.prepare import prepare
from trainparity.records import layout
from trainparity.records.known_answer import KnownAnswer
from trainparity.validation import ParamsError


def read_claim(claim: str, path: Path) -> Weights:
    """Read a claim about final weights.

    Raises:
        ParamsError: the file has mistakes, or the claim is about something else.
    """
    measure = load_claims(path)[claim].measure
    if not isinstance(measure, Weights):
        raise ParamsError(f"{path}: {claim}.measure.name: {measure.name}; only published weights are a known answer")
    return measure


def reproduce(claim: str, published: Weights, params: Params, environment: Environment, out: Path) -> KnownAnswer:
    """Train the runs of a claim into `out` and compare its final weights with the published ones.

    Raises:
        UserError: a configuration did not train.
    """
    prepare(params, out / "data", out / "downloads")
    run_reference(params, environment, "fp32", runs=out, data=out / "data", timed=False)
    weights: dict[str, np.ndarray] = {}
    for name in published.runs:
        status = run_configuration(params, environment, name, runs=out, data=out / "data", timed=False)
        if status.status != "trained":
            raise UserError(f"{claim}: {status.ending}")
        weights[name] = final_weights(layout.weights(out, name))
    return KnownAnswer(
        claim=claim,
        published=published.published,
        decimals=published.decimals,
        measured={name: values.tolist() for name, values in weights.items()},
        largest_difference=float(np.ptp(list(weights.values()), axis=0).max()),
        reproduced=all(published.equal(values) for values in weights.values()),
    )
