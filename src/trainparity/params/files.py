"""From a params file to its object, at one of its scales."""

from pathlib import Path
from typing import Any

from trainparity.params.overlay import laid_over
from trainparity.params.root import Params
from trainparity.validation import ParamsError, not_one_of, read_yaml, validate


def load(path: Path, scale: str | None = None) -> Params:
    """Read and validate a params file, at another scale than its own if one is given.

    Raises:
        ParamsError: the file is missing, is not YAML, or has mistakes: one line each, as
            `file: key.path: value: what is wrong and what is allowed`.
    """
    content = read_yaml(path)
    return parse(content | {"scale": scale} if scale and isinstance(content, dict) else content, path)


def parse(content: Any, path: Path) -> Params:
    """Validate an already parsed params file, its scale laid over it; `path` only names it in errors."""
    if not isinstance(content, dict):
        raise ParamsError(f"{path}: must be a mapping with the keys {', '.join(Params.model_fields)}")
    scale, scales = content.get("scale"), content.get("scales")
    if scale is not None and isinstance(scales, dict):
        if not isinstance(scale, str) or scale not in scales:
            raise ParamsError(f"{path}: scale: {not_one_of(scale, [str(name) for name in scales])}")
        changes = scales[scale] or {}
        if not isinstance(changes, dict):
            raise ParamsError(f"{path}: scales.{scale}: {changes!r} is no mapping of settings")
        content = laid_over(content, changes)
    return validate(Params, content, path)
