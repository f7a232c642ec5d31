"""What `trainparity ab` compares: two commands, or one under two revisions or two interpreters."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainparity.records.numbers import counted
from trainparity.running.command import Command
from trainparity.running.errors import RunError
from trainparity.running.interpreters import under
from trainparity.running.record import say
from trainparity.running.revisions import Repository, at


@dataclass(frozen=True)
class Pair:
    """Both commands."""

    commands: tuple[Command, Command]
    outside: Path | None = None
    """A folder from which neither may import code."""


@contextmanager
def commands_of(
    words: Sequence[str],
    revisions: tuple[str | None, str | None],
    links: Sequence[Path],
    interpreters: tuple[Path | None, Path | None],
) -> Iterator[Pair]:
    """Yield what the options of `ab` name, with worktrees made where there are revisions.

    Raises:
        RunError: the options don't fit together.
    """
    by_revision, by_interpreter = revisions != (None, None), interpreters != (None, None)
    if (by_revision and None in revisions) or (by_interpreter and None in interpreters):
        raise RunError("give both of --base and --test, or both of --python-a and --python-b")
    if links and not by_revision:
        raise RunError("--link is for revisions: give --base and --test")
    if not by_revision and not by_interpreter:
        if len(words) != 2:
            raise RunError(
                f"give two commands, each quoted as one word, and not {len(words)}; one alone goes with --base and "
                "--test, or with --python-a and --python-b"
            )
        yield Pair((Command.parse(words[0]), Command.parse(words[1])))
        return
    command = _one(words)
    both = (command, command)
    if by_interpreter:
        both = (under(command, Path(str(interpreters[0]))), under(command, Path(str(interpreters[1]))))
    if not by_revision:
        yield Pair(both)
        return
    repository, names = Repository(command.folder), [str(name) for name in revisions]
    if count := repository.uncommitted():
        say(f"{counted(count, 'file')} with uncommitted changes: the changes are not part of either revision")
    with repository.checked_out(names) as folders:
        left, right = (at(one, folder, links, repository.top) for one, folder in zip(both, folders, strict=True))
        yield Pair((left, right), outside=repository.top)


def _one(words: Sequence[str]) -> Command:
    """Read one command, quoted as one word or in words of its own; a program's name has seldom a space in it."""
    if len(words) == 1:
        return Command.parse(words[0])
    if " " in words[0].strip() and not shutil.which(words[0]):
        raise RunError(
            "give one command with --base and --test, or with --python-a and --python-b, quoted as one word or not at "
            f"all: {words[0]!r} is no program"
        )
    return Command(tuple(words))
