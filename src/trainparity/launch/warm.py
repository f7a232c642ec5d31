"""Worker processes forked from one that has imported torch already: many short runs then start at once.

Linux alone: macOS's frameworks do not survive a fork.
(https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods)
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from trainparity.launch import fork_server
from trainparity.launch.variables import of_workers
from trainparity.scratch import scratch
from trainparity.training.spec import WORKER

WARM = "TRAINPARITY_WARM"
"""Environment variable: where the fork server listens. Stages of the pipeline find it there too."""

_MODULES = [WORKER, "torch._dynamo"]  # which the first optimizer imports
_LONGEST = 107
"""Bytes of a socket's path: unix(7)."""


@contextmanager
def warm_workers() -> Iterator[None]:
    """Have a process ready for as long as this lasts, from which `start_warm` forks, here and in child processes."""
    if sys.platform != "linux" or os.environ.get(WARM):
        yield
        return
    with scratch() as folder, closing(socket.socket(socket.AF_UNIX)) as listening:
        address = str(folder / "workers")
        if len(os.fsencode(address)) > _LONGEST:
            yield
            return
        listening.bind(address)
        listening.listen(64)
        command = [sys.executable, "-m", fork_server.__name__, str(listening.fileno()), *_MODULES]
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env=os.environ | of_workers(1),
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )
        listening.close()  # who connects when the server is gone is to hear that
        os.environ[WARM] = address
        try:
            yield
        finally:
            del os.environ[WARM]
            server.kill()  # what was forked from it is another owner's
            server.communicate()


def wake() -> None:
    """Have the fork server, if there is one, import what workers need, as some will be started soon."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        if address := os.environ.get(WARM):
            server.connect(address)


class WarmProcess:
    """A process that the fork server has forked."""

    def __init__(self, server: socket.socket, descriptor: int) -> None:
        """Take over the connection on which it was asked for, and the process's descriptor (pidfd)."""
        self._server, self._descriptor = server, descriptor

    def fileno(self) -> int:
        """Return what can be read when it has ended, or when nobody will know how it ends."""
        return self._server.fileno()

    def wait(self) -> int | None:
        """Wait for its end; return its exit code, a signal's number negated, or None if the server was killed."""
        with suppress(OSError):
            if answer := self._server.recv(16):
                return int(answer)
        return None

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def __del__(self) -> None:
        self._server.close()
        os.close(self._descriptor)


def start_warm(module: str, argument: str, environment: Mapping[str, str]) -> WarmProcess | None:
    """Start one of our modules in a process of its own; None: there is nothing to fork from.

    Args:
        module: What `python -m` would be told.
        argument: The one command-line argument.
        environment: All of the process's variables.
    """
    address = os.environ.get(WARM)
    if not address:
        return None
    request = fork_server.Request(module, argument, dict(environment), str(Path.cwd()), sys.prefix)
    asked = json.dumps(request).encode()
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(address)
        socket.send_fds(server, [len(asked).to_bytes(fork_server.HEAD, "big")], [0, 1, 2])
        server.sendall(asked)
        answer, files, _, _ = socket.recv_fds(server, len(fork_server.FORKED), 1)
    except OSError:
        answer, files = b"", []
    if answer != fork_server.FORKED or not files:
        server.close()
        return None
    return WarmProcess(server, files[0])
