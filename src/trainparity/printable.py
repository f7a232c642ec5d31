"""What other people wrote, as names in a trace or of files: none of it steers the terminal, or tells a password."""

import re
import unicodedata


def printable(text: str) -> str:
    """Return a text in which control characters are shown as U+FFFD, but for line ends and tabs.

    Those that turn the direction of writing are some: they reverse the rest of a line, and with it what we say there.
    """
    return "".join("\N{REPLACEMENT CHARACTER}" if _steers(c) else c for c in text)


def one_line(text: str) -> str:
    """Return a printable text in which line ends and tabs are shown as U+FFFD too: a name within a line."""
    return re.sub(r"[\n\t]", "\N{REPLACEMENT CHARACTER}", printable(text))


def without_password(text: str) -> str:
    """Return a text in which the passwords of addresses are `...`; of https a user's name alone may be a token."""
    return _IN_ADDRESS.sub(r"\1...@", text)


_IN_ADDRESS = re.compile(r"(https?://(?:[^/\s:@]*:)?|://[^/\s:@]*:)[^/?#\s]+@")


def _steers(character: str) -> bool:
    if character in "\n\t":
        return False
    return unicodedata.category(character) == "Cc" or unicodedata.bidirectional(character) in _TURNS


_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Directions that hold until they are ended (Unicode Standard Annex 9); marks and letters are none of them."""
