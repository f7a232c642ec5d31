"""The params of a check: what params.yaml would say, from the command line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainparity import workloads
from trainparity.checking.candidates import name, parse
from trainparity.params import Configuration, Params
from trainparity.params import parse as parse_params
from trainparity.validation import ParamsError, parse_yaml

_HERE = Path("check")
"""Named in errors in place of params.yaml."""

_OPTIONS = {
    "accelerator": "--accelerator",
    "curves.seeds": "--seeds",
    "dataset": "--dataset",
    "parity.margin": "--margin",
    "parity.window": "--window",
    "train.clip_norm": "--clip-norm",
    "train.global_batch_size": "--batch",
    "train.max_steps": "--steps",
    "train.optimizer": "--optimizer",
    "workload.options": "--options",
}
"""Keys of params.yaml, and the options that set them here."""


@contextmanager
def as_typed(against: Sequence[str]) -> Iterator[None]:
    """Have mistakes in the settings of a check named by its options and candidates: nobody wrote a params.yaml."""
    try:
        yield
    except ParamsError as error:
        text = str(error)
        for key, option in _OPTIONS.items():
            text = re.sub(rf"(?m)^{_HERE}: {re.escape(key)}(?:\.|: )", f"{option}: ", text)
        for candidate in against:
            text = re.sub(rf"\bconfigs\.{name(candidate)}(?![\w-])", f"--against {candidate}", text)
        raise ParamsError(text) from None


def candidates(texts: Sequence[str]) -> dict[str, Configuration]:
    """Return the candidates' settings by name, in the order given.

    Raises:
        ParamsError: one of them is not known.
    """
    parsed = {text: parse(text) for text in texts}
    return {name(text): configuration for text, configuration in parsed.items()}


def assemble(
    workload: str,
    chosen: Mapping[str, Configuration],
    *,
    options: Mapping[str, Any] | str,
    dataset: Mapping[str, Any] | str | None,
    train: dict[str, Any],
    parity: dict[str, Any],
    accelerator: str,
    seeds: int,
) -> Params:
    """Return the params of a check; `options`, `dataset` and the optimizer are mappings or YAML.

    A precision other than fp32 gets an entry of `curves`, compared over so many `seeds`; 0: none.

    Raises:
        ParamsError: a setting is wrong, or the workload can't be imported.
    """
    own = workloads.own_data(workloads.load(workload, _yaml("--options", options), _HERE), _HERE) is not None
    default = "{name: own}" if own else "{name: digits}"
    configs = {key: configuration.model_dump() for key, configuration in chosen.items()}
    precisions = {"fp32", "fp64", *(configuration.precision for configuration in chosen.values())}
    content = {
        "accelerator": accelerator,
        "workload": {"name": workload, "options": _yaml("--options", options)},
        "dataset": _yaml("--dataset", dataset or default),
        "train": {**train, "epochs": 10_000, "optimizer": _yaml("--optimizer", train["optimizer"])},
        "parity": parity,
        "references": {precision: {} for precision in sorted(precisions)},
        "configs": configs,
    }
    if seeds and (reduced := sorted(precisions - {"fp32", "fp64"})):
        pairs = {precision: {"left": "fp32", "right": precision} for precision in reduced}
        content["curves"] = {"seeds": seeds, "pairs": pairs}
    return parse_params(content, _HERE)


def _yaml(option: str, text: Mapping[str, Any] | str) -> Any:
    if isinstance(text, Mapping):
        return dict(text)
    if not isinstance(text, str):
        raise ParamsError(f"{option}: {text!r}: must be a mapping, or YAML of one")
    content = parse_yaml(text, f"{option} {text}")
    if not isinstance(content, dict):
        raise ParamsError(f"{option} {text}: must be a mapping such as {{name: value}}")
    return content
