"""Settings with some of them changed: a scale, a reference's own settings."""

from typing import Any


def laid_over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return settings with some of them changed; a section that gets another `name` is replaced as a whole."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("name", old.get("name")) == old.get("name"):
            value = laid_over(old, value)
        result[key] = value
    return result
