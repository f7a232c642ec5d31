"""From what a person writes after `--against` to configurations: `ddp:2`, `gradaccum:4`, `ddp:2+gradaccum:2`."""

import re
from pathlib import Path
from typing import Any

from trainparity.params import Configuration
from trainparity.validation import ParamsError, not_one_of, validate

_WORLD = "world_size"
CANDIDATES: dict[str, tuple[dict[str, Any], str | None]] = {
    "single": ({}, None),
    "cpu": ({"device": "cpu"}, None),
    "cuda": ({"device": "cuda"}, None),
    "mps": ({"device": "mps"}, None),
    "dp": ({"strategy": "data_parallel", _WORLD: 2}, _WORLD),
    "ddp": ({"strategy": "ddp", _WORLD: 2}, _WORLD),
    "fsdp": ({"strategy": "fsdp", _WORLD: 2}, _WORLD),
    "fsdp-offload": ({"strategy": "fsdp", _WORLD: 2, "offload": "both"}, _WORLD),
    "gradaccum": ({"accumulation_steps": 2}, "accumulation_steps"),
    "compiled": ({"compile": "default"}, None),
    "offload-activations": ({"offload": "activations"}, None),
    "amp-bf16": ({"precision": "bf16"}, None),
    "amp-fp16": ({"precision": "fp16"}, None),
    "tf32": ({"precision": "tf32"}, None),
}
"""The words, the settings that each stands for, and which of them a number after a colon replaces."""


def parse(text: str) -> Configuration:
    """Return the configuration that a candidate such as `ddp:2+gradaccum:4` stands for.

    Raises:
        ParamsError: a word or number of it is not known.
    """
    if not isinstance(text, str):
        raise ParamsError(f"--against: {text!r} is no text; allowed: words such as ddp:2+gradaccum:2")
    settings: dict[str, Any] = {"strategy": "single", "device": "auto", "precision": "fp32"}
    given: dict[str, str] = {}
    for part in text.split("+"):
        word, _, number = part.partition(":")
        if word not in CANDIDATES:
            raise ParamsError(f"--against {text}: {not_one_of(word, list(CANDIDATES))}")
        chosen, counted = CANDIDATES[word]
        if twice := [key for key in chosen if key in given]:
            raise ParamsError(f"--against {text}: {part!r} sets {', '.join(twice)}, which {given[twice[0]]!r} has set")
        given |= dict.fromkeys(chosen, part)
        settings |= chosen
        if number and (counted is None or not re.fullmatch(r"[1-9][0-9]*", number)):
            allowed = "a number from 1" if counted else "no number"
            raise ParamsError(f"--against {text}: {part!r}: {number!r} after {word}; allowed: {allowed}")
        if number:
            settings[str(counted)] = int(number)
    return validate(Configuration, settings, Path(f"--against {text}"))


def name(text: str) -> str:
    """Return a candidate's name as a configuration: lower-case words joined by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
