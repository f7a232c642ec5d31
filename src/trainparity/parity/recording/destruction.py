"""Calls functions before the default process group is destroyed: afterwards no rank can tell the others anything."""

import sys
from collections.abc import Callable
from typing import Any

_functions: list[Callable[[], None]] = []


def call_before_destruction(function: Callable[[], None]) -> None:
    """Call a function before the group is destroyed. This imports no torch: a process may be importing it now.

    `destroy_process_group` is caught however it was imported: it looks the function that is replaced up by name.
    """
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    original = getattr(module, "_update_default_pg", None)  # none in a build without torch.distributed
    if original is None:
        return
    _functions.append(function)
    if getattr(original, "calls", None) is _functions:
        return

    def update(group: Any) -> None:
        if group is None:
            for one in [*_functions]:
                one()
        original(group)

    update.calls = _functions  # type: ignore[attr-defined]
    module._update_default_pg = update


def call_no_more(function: Callable[[], None]) -> None:
    """Forget a function."""
    if function in _functions:
        _functions.remove(function)
