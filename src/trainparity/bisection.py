"""Which of several settings, switched at once, make another training.

First each setting alone, as one is the usual culprit. Where none is, settings are left out one by one for as long as
what is left is another training: the last step of delta debugging (Zeller and Hildebrandt, "Simplifying and isolating
failure-inducing input", IEEE Transactions on Software Engineering 28(2), 2002). For n settings that is at most 2 n
trainings.
"""

from collections.abc import Callable, Sequence

from trainparity.records.verdict import Bisection, Outcome

Settings = tuple[str, ...]


def bisect(settings: Sequence[str], judge: Callable[[Settings], Outcome]) -> Bisection:
    """Find the smallest sets of settings that are another training; all of them together are known to be one.

    Args:
        settings: At least two, each once.
        judge: Trains with some of the settings, given in their order, and returns the verdict.
    """
    tried: dict[Settings, Outcome] = {}

    def differs(subset: Settings) -> bool:
        if subset not in tried:
            tried[subset] = judge(subset)
        return tried[subset] == "different"

    smallest: list[Settings] = [(setting,) for setting in settings if differs((setting,))]
    if not smallest:
        left = tuple(settings)
        for setting in settings:
            without = tuple(other for other in left if other != setting)
            if len(without) > 1 and differs(without):
                left = without
        smallest = [left]
    return Bisection(
        smallest=[list(subset) for subset in smallest],
        tried={" + ".join(subset): outcome for subset, outcome in tried.items()},
    )
