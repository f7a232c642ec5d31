"""What two commands differ in, as settings that can be switched one by one from the first command to the second."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from shlex import join

from trainparity.running import secrecy
from trainparity.running.command import Command

_Words = tuple[str, ...]
"""An option with its values; or what starts the script; or the script's arguments before the first option."""


@dataclass(frozen=True)
class _Part:
    """A part of both commands, in their order; equal, or a setting."""

    left: tuple[_Words, ...]
    right: tuple[_Words, ...]

    @property
    def name(self) -> str:
        """What the setting is called: the words of the second command, or of both if it replaces some."""
        before, after = (join(secrecy.words([w for words in side for w in words])) for side in (self.left, self.right))
        if not before:
            return after
        return f"{before} -> {after}" if after else f"without {before}"


class Switches:
    """The settings that lead from one command to another."""

    def __init__(self, first: Command, second: Command) -> None:
        """Take both commands; each variable and each option that differs is a setting."""
        self._first, self._second = first, second
        self._parts = list(_parts(first.arguments, second.arguments))
        names = {*first.environment, *second.environment}
        self._variables = {
            secrecy.variable(name, second.environment.get(name, "")): name
            for name in sorted(names)
            if first.environment.get(name) != second.environment.get(name)
        }

    @property
    def names(self) -> list[str]:
        """The settings' names, each once."""
        return list(dict.fromkeys([*self._variables, *(part.name for part in self._parts if part.left != part.right)]))

    def command(self, chosen: Collection[str]) -> Command:
        """Return the first command with some settings as in the second."""
        taken = [part.right if part.left != part.right and part.name in chosen else part.left for part in self._parts]
        environment = dict(self._first.environment)
        for text, name in self._variables.items():
            if text in chosen:
                environment[name] = self._second.environment.get(name, "")
        return Command(
            tuple(word for part in taken for words in part for word in words), environment, self._first.folder
        )


def _parts(first: _Words, second: _Words) -> Iterator[_Part]:
    """Yield the parts of two commands: how the script is started, its positional arguments, its options."""
    left, right = _cut(first), _cut(second)
    for before, after in zip(left[:2], right[:2], strict=True):
        yield _Part((before,), (after,))
    ours, theirs = left[2:], right[2:]
    for kind, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            yield _Part(tuple(ours[i:j]), tuple(theirs[k:m]))
        else:
            yield from _single(ours[i:j], theirs[k:m])


def _cut(words: _Words) -> list[_Words]:
    """Cut a command behind the script, then before each word that begins with a dash."""
    script = next((number for number, word in enumerate(words) if word.endswith(".py")), None)
    if script is None:  # a module, or a program
        script = max((number + 1 for number, word in enumerate(words[:-1]) if word == "-m"), default=0)
    arguments = words[script + 1 :]
    dashes = [number for number, word in enumerate(arguments) if word.startswith("-")]
    cuts = [*dashes, len(arguments)]
    return [words[: script + 1], arguments[: cuts[0]], *(arguments[start:stop] for start, stop in pairwise(cuts))]


def _single(ours: Sequence[_Words], theirs: Sequence[_Words]) -> Iterator[_Part]:
    """Yield options that differ one by one; one of the same name has another value."""
    others = {words[0]: words for words in theirs}
    for words in ours:
        yield _Part((words,), (others.pop(words[0]),) if words[0] in others else ())
    for words in theirs:
        if others.pop(words[0], None):
            yield _Part((), (words,))
