"""Names as people read them, where there may be many."""


def some(names: list[str], most: int = 3) -> str:
    """Name a few of many."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
