"""How one optimizer step over one global batch is executed. A run imports the strategy that it uses and no other."""

import importlib

from trainparity.strategies.base import Execution, Strategy

__all__ = ["Execution", "Strategy", "load", "module_of", "names"]

_REGISTRY = "trainparity.strategies.registry"
"""Imported by this name, so that it is part of no run's code: the strategy that it leads to is, a new entry is not."""


def names() -> list[str]:
    """Return the names of all strategies."""
    return list(_registry())


def load(name: str) -> type[Strategy]:
    """Import a strategy; `KeyError` if there is none of that name."""
    module, _, kind = _registry()[name].partition(":")
    strategy: type[Strategy] = getattr(importlib.import_module(module), kind)
    return strategy


def module_of(name: str) -> str:
    """Return the module that holds a strategy; nothing is imported."""
    return _registry()[name].partition(":")[0]


def _registry() -> dict[str, str]:
    found: dict[str, str] = importlib.import_module(_REGISTRY).STRATEGIES
    return found
