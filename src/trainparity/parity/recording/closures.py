"""A closure that an optimizer evaluates in its step: only the first time is recorded, later ones have other weights."""

from collections.abc import Callable, Mapping
from typing import Any

from trainparity.parity.recording.joint import Joint

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Of an optimizer's `step`, of which the first is the optimizer itself."""


def made_inside(optimizer: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
    """Tell whether what is applied is made in the step: by a closure, by several optimizers, of a scaled loss."""
    evaluates = any(map(callable, (*args[1:], keywords.get("closure"))))
    scaled = getattr(optimizer, "grad_scale", None) is not None or "grad_scaler" in keywords
    return evaluates or scaled or isinstance(optimizer, Joint)


class Closures:
    """Watches what a step's arguments evaluate."""

    def __init__(self, again: Callable[[], None], evaluated: Callable[[], None]) -> None:
        """`again` is called before each evaluation but the first, `evaluated` after the first."""
        self._again, self._evaluated = again, evaluated
        self.evaluations = 0
        """In this step so far."""

    def begin(self) -> None:
        """Watch the next step."""
        self.evaluations = 0

    def watched(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Arguments:
        """Return a step's arguments with the closure watched."""
        positional = tuple(self._watch(a) if n and callable(a) else a for n, a in enumerate(args))
        return positional, {k: self._watch(v) if k == "closure" and callable(v) else v for k, v in keywords.items()}

    def _watch(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            self.evaluations += 1
            if self.evaluations > 1:
                self._again()
            made = closure()
            if self.evaluations == 1:
                self._evaluated()
            return made

        return evaluate
