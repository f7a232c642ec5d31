"""A published result computed again: what our verdicts are worth if we can't reproduce it, nothing."""

from pathlib import Path

import numpy as np
from pydantic import Field
from safetensors.numpy import load_file

from trainparity.environment import Environment
from trainparity.launch.prepare import prepare
from trainparity.launch.runs import run_configuration, run_reference
from trainparity.params import Params
from trainparity.records import KnownAnswer
from trainparity.validation import Section, validate


class PublishedWeights(Section):
    """A claim of claims.yaml that final weights are these."""

    statement: str
    published: list[float] = Field(min_length=1)
    decimals: int = Field(ge=0)


def read_claim(content: object, claim: str, path: Path) -> PublishedWeights:
    """Read a claim about weights; a `ParamsError` names what is wrong in the file at `path`."""
    return validate(PublishedWeights, content, path, (claim,))


def reproduce(
    claim: str, published: PublishedWeights, params: Params, environment: Environment, out: Path
) -> KnownAnswer:
    """Train every configuration of a study into `out` and hold its final weights against the published ones.

    Raises:
        RuntimeError: a configuration did not train.
    """
    prepare(params, out / "data", out / "downloads")
    run_reference(params, environment, "fp32", runs=out, data=out / "data", timed=False)
    weights: dict[str, np.ndarray] = {}
    for name in params.configs:
        status = run_configuration(params, environment, name, runs=out, data=out / "data", timed=False)
        if status.status != "trained":
            raise RuntimeError(f"{claim}: {name} was {status.status}: {status.reason}")
        tensors = load_file(out / name / "state" / "weights.safetensors")
        weights[name] = np.concatenate([tensors[key].ravel() for key in sorted(tensors)])
    stacked = np.stack(list(weights.values())).astype(np.float64)
    return KnownAnswer(
        claim=claim,
        published=published.published,
        decimals=published.decimals,
        measured={name: values.tolist() for name, values in weights.items()},
        largest_difference=float(np.ptp(stacked, axis=0).max()),
        reproduced=bool((stacked.round(published.decimals) == np.array(published.published)).all()),
    )
