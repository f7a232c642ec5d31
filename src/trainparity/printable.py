"""What other people wrote, as names in a trace or of files: none of it steers the terminal that shows it."""

import unicodedata


def printable(text: str) -> str:
    """Return a text in which control characters are shown as U+FFFD, but for line ends and tabs."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text
    )
