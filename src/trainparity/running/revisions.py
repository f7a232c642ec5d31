"""Two git revisions side by side, each checked out in a temporary worktree."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainparity.running.command import Command
from trainparity.running.errors import RunError
from trainparity.scratch import scratch


class Repository:
    """The git repository that the current folder belongs to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.top = Path(self._git("rev-parse", "--show-toplevel"))
        self._prefix = self._git("rev-parse", "--show-prefix")

    def commit(self, revision: str) -> str:
        """Return the commit that a revision names."""
        return self._git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")

    def uncommitted(self) -> int:
        """Return the number of files with changes that no commit holds."""
        return len(self._git("status", "--porcelain").splitlines())

    @contextmanager
    def checked_out(self, revisions: Sequence[str]) -> Iterator[list[Path]]:
        """Yield a worktree of each revision, in the subfolder that corresponds to the current one."""
        commits = [self.commit(revision) for revision in revisions]
        try:
            with scratch() as place:
                for number, commit in enumerate(commits):
                    self._git("worktree", "add", "--quiet", "--detach", str(place / str(number)), commit)
                folders = [place / str(number) / self._prefix for number in range(len(commits))]
                for folder, revision in zip(folders, revisions, strict=True):
                    if not folder.is_dir():
                        raise RunError(f"{revision} has no folder {self._prefix}")
                yield folders
        finally:
            subprocess.run(["git", "worktree", "prune"], cwd=self._folder, capture_output=True, check=False)

    def _git(self, *arguments: str) -> str:
        try:
            done = subprocess.run(["git", *arguments], cwd=self._folder, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise RunError("git is not installed") from None
        if done.returncode:
            raise RunError(f"git {arguments[0]}: {done.stderr.strip()}")
        return done.stdout.strip()


def at(command: Command, folder: Path, links: Sequence[Path]) -> Command:
    """Return a command as it runs in a worktree; `links` are paths that no revision holds, such as data.

    A program given by a relative path, as `.venv/bin/python`, is the current folder's where the worktree has none.
    """
    here = command.folder
    for link in links:
        source, target = (here / link).absolute(), folder / link
        if link.is_absolute() or not source.exists():
            raise RunError(f"--link {link}: there is no such path in {here}")
        if target.exists():
            raise RunError(f"--link {link}: the revision has it too")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    program = command.arguments[0]
    if "/" in program and not (folder / program).exists():
        program = str((here / program).absolute())
    sources = folder / "src"
    paths = [str(sources)] if sources.is_dir() else []
    paths += filter(None, [command.environment.get("PYTHONPATH")])
    environment = {**command.environment, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}
    return replace(command, arguments=(program, *command.arguments[1:]), environment=environment, folder=folder)
