"""Two git revisions side by side, each checked out in a temporary worktree."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from trainparity.running.command import Command
from trainparity.running.errors import RunError
from trainparity.scratch import scratch

_OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables by which git names the repository to a hook: with its index a worktree would overwrite what is staged."""
_SUBMODULE = "160000"
"""Mode of a submodule in a tree."""


class Repository:
    """The git repository that the current folder belongs to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.top = Path(self._git("rev-parse", "--show-toplevel"))
        self._prefix = self._git("rev-parse", "--show-prefix")

    def commit(self, revision: str) -> str:
        """Return the commit that a revision names."""
        try:
            return self._git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        except RunError:
            shallow = self._git("rev-parse", "--is-shallow-repository") == "true"
            fetch = "; the clone is shallow: `git fetch --unshallow` brings the rest" if shallow else ""
            raise RunError(f"{revision!r} is no commit of {self.top}{fetch}") from None

    def uncommitted(self) -> int:
        """Return the number of files with changes that no commit holds."""
        return len(self._git("status", "--porcelain").splitlines())

    @contextmanager
    def checked_out(self, revisions: Sequence[str]) -> Iterator[list[Path]]:
        """Yield a worktree of each revision, in the subfolder that corresponds to the current one."""
        commits = [self.commit(revision) for revision in revisions]
        used = list[Path]()
        try:
            with scratch() as place:
                for number, commit in enumerate(commits):
                    used += _check_out(self.top, commit, place / str(number))
                folders = [place / str(number) / self._prefix for number in range(len(commits))]
                for folder, revision in zip(folders, revisions, strict=True):
                    if not folder.is_dir():
                        raise RunError(f"{revision} has no folder {self._prefix}")
                yield folders
        finally:
            for clone in {self.top, *used}:
                with suppress(RunError):
                    _git(clone, "worktree", "prune")

    def _git(self, *arguments: str) -> str:
        return _git(self._folder, *arguments)


def _check_out(clone: Path, commit: str, folder: Path) -> list[Path]:
    """Make a worktree of a commit, and in it of each submodule that the working tree holds; return the clones used."""
    _git(clone, "worktree", "add", "--quiet", "--detach", str(folder), commit)
    used = [clone]
    for line in _git(clone, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0"):
        entry, _, path = line.partition("\t")
        if entry.startswith(_SUBMODULE) and (clone / path / ".git").exists():
            try:
                used += _check_out(clone / path, entry.split()[2], folder / path)
            except RunError as error:
                raise RunError(f"submodule {path}: {error}") from None
    return used


def _git(folder: Path, *arguments: str) -> str:
    """Run git, without hooks; where a hook runs us, its index and folders are not those of this command."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}
    command = ["git", "-c", f"core.hooksPath={os.devnull}", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RunError("git is not installed") from None
    if done.returncode:
        raise RunError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def at(command: Command, folder: Path, links: Sequence[Path], top: Path) -> Command:
    """Return a command as it runs in a worktree; `links` are paths that no revision holds, such as data.

    They lie in the repository, whose folder is `top`: above a worktree lies nothing that a link could be made in.

    A program given by a relative path, as `.venv/bin/python`, is the current folder's where the worktree has none.
    """
    here = command.folder
    for link in links:
        source, target = Path(os.path.normpath(here / link)), folder / link
        if not source.is_relative_to(top):
            raise RunError(f"--link {link}: lies outside of {top}: have the script read it by its path {source}")
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
