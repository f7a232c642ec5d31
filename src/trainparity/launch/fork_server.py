"""The process that workers are forked from: `python -m trainparity.launch.fork_server DESCRIPTOR MODULE...`.

It waits at a socket, and imports the modules when the first request comes: where no worker is started it costs nothing.
Each connection asks for one process, and hears how that ended. It ends when its standard input has, which the
process that started it holds open, and nobody waits for a forked process any more.
"""

import atexit
import gc
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

HEAD = 8
"""Bytes of a request's length, which come first, with the new process's three files."""
FORKED = b"forked"
"""What is answered, with a descriptor of the new process (pidfd); else the connection is closed."""

_READ_AT_START = ("PYTHON", "LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "MALLOC_", "TORCH")
_READ_LATER = {"OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}
_OF_ITS_PROCESS = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}
"""What scikit-learn sets where it is imported, as by who prepares data; it changes no result."""
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a service sends to all processes: they are for those who wait here for what was forked."""
_PATIENCE_S = 10.0
"""How long a request may take to arrive, once it has begun."""


class Request(NamedTuple):
    """What a new process is to be."""

    module: str
    """Run as `python -m` would."""
    argument: str
    """The one command-line argument."""
    environment: dict[str, str]
    """All of its variables."""
    folder: str
    """Its working directory."""
    prefix: str
    """Where the Python is installed that asks; only its own server can serve it."""


def started_with(environment: dict[str, str]) -> dict[str, str]:
    """Return those variables that only a process which starts with them heeds: Python and libraries read them once."""
    others = _READ_LATER | _OF_ITS_PROCESS
    return {n: v for n, v in environment.items() if n.startswith(_READ_AT_START) and n not in others}


def main() -> None:
    """Serve; return in each forked process after its work, never in this one."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    code = 1
    # What is registered first comes last: all else has ended then, and taking down what was imported costs 0.4 s.
    atexit.register(lambda: _leave(code))
    request = _Server(listening, sys.argv[2:]).serve()
    _be(request)
    try:
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise


def _leave(code: int) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


class _Server:
    """Forks, and tells each client how its process ended."""

    def __init__(self, listening: socket.socket, modules: Sequence[str]) -> None:
        self._listening, self._modules = listening, modules
        self._clients: dict[int, tuple[int, socket.socket]] = {}
        """By a process's descriptor: its number, and who asked for it."""
        self._own = os.getpid()
        self._began_ns = 0
        self._files: list[Path] = []
        """Those of all modules that every forked process has."""

    def serve(self) -> Request:
        """Fork a process for each request; return in that process alone."""
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPS}
        needed: list[Any] = [self._listening, sys.stdin]
        while needed or self._clients:
            ready, _, _ = select.select([*needed, *self._clients], [], [])
            for descriptor in [ended for ended in self._clients if ended in ready]:
                self._tell(descriptor)
            if sys.stdin in ready:  # who started it is gone; what it has forked may have a checkpoint to write
                self._listening.close()
                needed.clear()
            elif self._listening in ready and (request := self._accept()):
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
                return request
        os._exit(0)

    def _accept(self) -> Request | None:
        """Take a connection; return its request in the forked process, None in this one."""
        connection, _ = self._listening.accept()
        self._warm_up()
        try:
            connection.settimeout(_PATIENCE_S)
            received = _receive(connection)
        except (OSError, ValueError, TypeError):
            received = None
        if received is None:  # it only woke us, or broke off
            connection.close()
            return None
        request, files = received
        try:
            return self._fork(connection, request, files) if self._can_serve(request) else None
        finally:
            for file in files:
                os.close(file)
            if not any(connection is client for _, client in self._clients.values()):
                connection.close()

    def _warm_up(self) -> None:
        if self._began_ns:
            return
        self._began_ns = time.time_ns()
        for module in self._modules:
            import_module(module)
        specs = [spec for module in list(sys.modules.values()) if (spec := getattr(module, "__spec__", None))]
        self._files = [Path(spec.origin) for spec in specs if spec.has_location and spec.origin]
        _end_nothing_of_ours()
        gc.collect()
        gc.freeze()  # else a collection in each process writes to, and so copies, all of these objects

    def _can_serve(self, request: Request) -> bool:
        """Tell whether a forked process would be as one that starts now: by its variables, and no code has changed."""
        if request.prefix != sys.prefix or started_with(dict(os.environ)) != started_with(request.environment):
            return False
        try:
            return all(file.stat().st_ctime_ns <= self._began_ns for file in self._files)
        except OSError:  # removed
            return False

    def _fork(self, connection: socket.socket, request: Request, files: Sequence[int]) -> Request | None:
        """Fork; return the request in the new process, None in this one."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # what comes to the new process at once waits for its handlers
        try:
            process = os.fork()
        except OSError:  # as where no more processes are allowed
            return None
        finally:
            if os.getpid() == self._own:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        if not process:
            self._listening.close()
            for descriptor, (_, client) in self._clients.items():
                os.close(descriptor)
                client.close()
            self._clients.clear()
            for number, file in enumerate(files):
                os.dup2(file, number)
            return request
        try:
            descriptor = os.pidfd_open(process)
            socket.send_fds(connection, [FORKED], [descriptor])
        except OSError:  # no such descriptors here, or the client is gone
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None
        self._clients[descriptor] = process, connection
        return None

    def _tell(self, descriptor: int) -> None:
        process, client = self._clients.pop(descriptor)
        _, status = os.waitpid(process, 0)
        with suppress(OSError):  # the client is gone
            client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        client.close()
        os.close(descriptor)


def _receive(connection: socket.socket) -> tuple[Request, list[int]] | None:
    head, files, _, _ = socket.recv_fds(connection, HEAD, 3)
    if len(head) < HEAD or len(files) < 3:
        return None
    size, asked = int.from_bytes(head, "big"), b""
    while len(asked) < size and (part := connection.recv(size - len(asked))):
        asked += part
    fields: list[Any] = json.loads(asked)
    return Request(*fields), files


def _end_nothing_of_ours() -> None:
    """Have forked processes not take down, at their ends, what torch has set up in this one: it costs them 0.06 s."""
    from torch._dynamo.utils import dump_compile_times

    atexit.unregister(dump_compile_times)  # which only logs them
    for finalizer in list(vars(weakref.finalize).get("_registry", ())):  # no public name: where it has another, none
        finalizer.atexit = False


def _be(request: Request) -> None:
    """Make this process what one would be that had been started by itself."""
    import numpy
    import torch

    os.setsid()
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    tempfile.tempdir = None  # found anew from TMPDIR
    if not sys.flags.safe_path:
        sys.path[0] = request.folder  # as `python -m` has it
    sys.argv = [request.module, request.argument]
    sys.modules.pop(request.module, None)  # it becomes __main__
    for generator in (random, numpy.random, torch.default_generator):  # all would draw the same
        generator.seed()


if __name__ == "__main__":
    main()
