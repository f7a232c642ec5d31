"""One owner of a folder at a time, by a kernel lock: others wait, and what the owner started ends with it.

The lock is on a file beside the folder and is freed by the kernel however the owner ends. The processes that it starts
poll the lock: one that can have it has lost its owner. A parent's death would say less: launchers lie between.
(flock(2): https://man7.org/linux/man-pages/man2/flock.2.html)
"""

import fcntl
import json
import os
import platform
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainparity.errors import UserError

OWNER = "TRAINPARITY_OWNER"
"""Environment variable of the processes that an owner starts: a token and the lock's path."""

_WAITED = "TRAINPARITY_WAITED"
"""Environment variable of a process in a container whose owner had to wait for another one."""

_POLL_S = 0.25
_LEFT_OVER_S = 60.0
"""How long what a killed owner started may take to end."""


def _print(text: str) -> None:
    print(text, flush=True)


@contextmanager
def owned(folder: Path, say: Callable[[str], None] = _print) -> Iterator[bool]:
    """Own a folder, which need not exist; processes that are started meanwhile can end with this one.

    Args:
        folder: Its lock is the file `<folder>.lock`, which stays.
        say: Told once that another process owns the folder, or that its last owner was killed.

    Yields:
        Whether another owner was waited for, here or by the owner of the container that this process is in.

    Raises:
        UserError: the folder's owner has started this process, so that both would wait for each other; or what its
            last owner, who was killed, has left does not end.
    """
    lock = folder.with_name(f"{folder.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex
    descriptor, waited = _acquire(lock, folder, say)
    try:
        left, killed = _content(descriptor), _owner(descriptor)
        known = {"token": token, "kernel": _kernel()}
        _write(descriptor, known | {"process": _process()})
        if killed:
            say(f"{folder}: its last owner, {killed}, was killed; what it started ends now")
        if left:
            _wait_for_what_is_left(lock, folder)
        before = os.environ.get(OWNER)
        os.environ[OWNER] = f"{token} {lock.absolute()}"
        try:
            yield waited or _WAITED in os.environ
        except BaseException:
            _write(descriptor, known)  # what it started ends as that of a killed one does; the next owner waits for it
            raise
        finally:
            os.environ.pop(OWNER, None)
            if before is not None:
                os.environ[OWNER] = before
        os.ftruncate(descriptor, 0)
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile holds the descriptor too
        os.close(descriptor)


def seen_at(root: Path, mount: Path, *, waited: bool) -> dict[str, str]:
    """Return the variables by which a process in a container knows this owner, for `end_with_owner` and `owned`.

    Args:
        root: A folder around the one that is owned.
        mount: Where the container has it.
        waited: What `owned` yielded.
    """
    token, _, lock = os.environ[OWNER].partition(" ")
    _alive(Path(lock)).touch()  # the container's user may not be allowed to make it
    waiting = {_WAITED: "1"} if waited else {}
    return {OWNER: f"{token} {mount / Path(lock).relative_to(root)}"} | waiting


def end_with_owner(*, if_killed: bool = False, by: signal.Signals = signal.SIGKILL) -> None:
    """From now on end this process, within a second, when the owner that started it is gone.

    Args:
        if_killed: Only then; an owner that ends by itself may leave it behind.
        by: The signal that ends it.
    """
    token, _, path = os.environ.get(OWNER, "").partition(" ")
    if not token:
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
        alive = os.open(_alive(Path(path)), os.O_RDONLY | os.O_CREAT, 0o666)
    except FileNotFoundError:  # with its whole folder: the owner is gone
        os.kill(os.getpid(), by)
        return
    except PermissionError:  # another user's: it can't be watched
        return
    if (kernel := _content(descriptor).get("kernel")) and kernel != _kernel():
        return  # a container in a virtual machine, which does not see the host's locks
    fcntl.flock(alive, fcntl.LOCK_SH)  # for as long as this process, or one that it forks, lives
    arguments = (descriptor, token, if_killed, by)
    threading.Thread(target=_watch, args=arguments, name="trainparity-owner", daemon=True).start()


def _watch(descriptor: int, token: str, if_killed: bool, by: signal.Signals) -> None:
    while _content(descriptor).get("token") == token and not _try(descriptor, fcntl.LOCK_SH):
        time.sleep(_POLL_S)
    fcntl.flock(descriptor, fcntl.LOCK_UN)  # which a process that this one forked would hold on
    if not if_killed or _content(descriptor).get("token") == token:
        os.kill(os.getpid(), by)


def _kernel() -> str:
    """Return what tells this kernel, since it started, from others; containers share their host's."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="utf-8").strip() if path.exists() else platform.node()


def _alive(lock: Path) -> Path:
    """Return the file that every process which ends with its owner locks, shared with the others."""
    return lock.with_suffix(".alive")


def _wait_for_what_is_left(lock: Path, folder: Path) -> None:
    """Wait until no process of the last owner is alive; raise a `UserError` if one does not end."""
    alive = os.open(_alive(lock), os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + _LEFT_OVER_S
    try:
        while not _try(alive, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise UserError(f"{folder}: a process of its killed owner is still alive; end it, then run again")
            time.sleep(_POLL_S)
    finally:
        os.close(alive)


def _acquire(lock: Path, folder: Path, say: Callable[[str], None]) -> tuple[int, bool]:
    """Return the locked file's descriptor, and whether it was waited for."""
    waited = False
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        while not _try(descriptor, fcntl.LOCK_EX):
            if not waited and (owner := _owner(descriptor)):
                if _is_inside(descriptor):
                    raise UserError(f"{folder}: {owner} works there and has started this, which it would wait for")
                waited = True
                say(f"{folder}: waiting for {owner}, which works there")
            time.sleep(_POLL_S)
        if lock.exists() and os.path.samestat(os.fstat(descriptor), lock.stat()):
            return descriptor, waited
        os.close(descriptor)  # removed while it was waited for


def _is_inside(descriptor: int) -> bool:
    """Tell whether another process that owns the folder has started this one, as a pipeline does a stage's command."""
    content, (token, _, _) = _content(descriptor), os.environ.get(OWNER, "").partition(" ")
    return bool(token) and content.get("token") == token and content.get("process") != _process()


def _process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some network file systems
        raise UserError(f"the file system can't lock files ({error.strerror}): run on another one") from None
    return True


def _owner(descriptor: int) -> str:
    return _content(descriptor).get("process", "")


def _write(descriptor: int, content: dict[str, str]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(content).encode(), 0)


def _content(descriptor: int) -> dict[str, str]:
    """Return what the owner wrote; empty if it has ended by itself."""
    try:
        found = json.loads(os.pread(descriptor, 4096, 0) or "{}")
    except ValueError:  # half written by a process that was killed
        found = None
    return found if isinstance(found, dict) else {"token": "", "process": "a process"}
