"""Seeds derived from several numbers: the same on every machine and Python version."""

_MASK = 2**64 - 1


def derived_seed(*numbers: int) -> int:
    """Mix integers of any sign into one seed from 0 to 2**63 - 1; their order counts.

    Each number goes through the finaliser of SplitMix64 (Steele et al., OOPSLA 2014).
    """
    state = len(numbers)
    for number in numbers:
        state = _mixed((state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK)
    return state >> 1


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
