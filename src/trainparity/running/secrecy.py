"""Commands as they are shown and kept: what a variable or an option is named to be secret is written as `...`."""

import re
import shlex
from collections.abc import Sequence

from trainparity.printable import without_password

_VARIABLE = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY")
_OPTION = re.compile(r"(^|[-_.])(token|secret|passw(or)?d|passphrase|credentials?|(api|access|secret)[-_]?key)$", re.I)
"""An option's name ends so: `--max-tokens` and `--tokenizer` do not."""


def words(command: Sequence[str]) -> list[str]:
    """Return a command's words without secrets; a word that is a command itself, as of `ab`, is looked through."""
    shown, hidden = list[str](), False
    for word in command:
        if hidden and not word.startswith("-"):
            shown.append("...")
            hidden = False
            continue
        name, given, value = word.partition("=")
        hidden = word.startswith("-") and not given and _OPTION.search(name) is not None
        is_command = re.search(r"\s", word) and not word.startswith("-")
        shown.append(variable(name, value) if given and not is_command else _inside(word))
    return shown


def variable(name: str, value: str) -> str:
    """Write a variable or an option with its value."""
    secret = _OPTION.search(name) or (name.upper() == name and _VARIABLE.search(name))
    return f"{name}=..." if secret else f"{name}={_inside(value)}"


def _inside(word: str) -> str:
    if re.search(r"\s", word):
        try:
            parts = shlex.split(word)
        except ValueError:  # a text with an apostrophe
            return word
        shown = words(parts)
        return word if shown == parts else shlex.join(shown)
    return without_password(word)
