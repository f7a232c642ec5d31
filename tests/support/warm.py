"""A Python that is warm: it runs a command line in a process forked from one that has imported the slow libraries.

Starting Python, torch and what a first optimizer imports takes 3 s, more than nearly all that the tests train. Where
starting a process is not what is tested, `python()` is an executable that takes Python's place on a command line: it
sends its arguments, environment, folder and open files to a server, and ends as the forked process ends.
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
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

LIBRARIES = (
    "torch", "torch._dynamo", "torch.distributed.launcher.api", "torch.distributed.fsdp", "torch.distributed.tensor",
    "pydantic", "rich.table", "safetensors.torch", "sklearn.datasets", "typer", "yaml",
)  # fmt: skip

OURS = (
    "trainparity.attach.process", "trainparity.cli", "trainparity.parity.compare", "trainparity.parity.record",
    "trainparity.running.ab", "trainparity.running.record", "trainparity.training.worker",
)  # fmt: skip
"""Of this project what most commands import."""

CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
asked = json.dumps([sys.argv, dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
server.sendall(asked)
signal.signal(signal.SIGTERM, lambda number, _: server.sendall(bytes([number])))  # torchrun stops a rank by it
answer = server.recv(16)
status = int(answer) if answer else 1
if status < 0:
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@cache
def python(*libraries: str, ours: bool = True) -> str:
    """Return a warm Python, which lasts as long as this process; on Linux only, elsewhere it is Python itself.

    macOS's frameworks do not survive a fork.

    Args:
        libraries: Modules that it imports beside those of most trainings; one server for each set of them.
        ours: Whether it has imported this project, too; not for a test that runs an edited copy.
    """
    if sys.platform != "linux":
        return sys.executable
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    atexit.register(folder.cleanup)
    address, executable = f"{folder.name}/socket", Path(folder.name) / "python"
    executable.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    executable.chmod(0o755)
    command = [sys.executable, __file__, address, *LIBRARIES, *(OURS if ours else ()), *libraries]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout and server.stdout.readline() == b"ready\n"
    atexit.register(server.communicate)  # it ends when its input ends
    return str(executable)


def _serve(address: str, libraries: Sequence[str]) -> None:
    """Fork a process for each command line that comes; return in that process alone."""
    for library in libraries:
        import_module(library)
    sys.modules.pop("sitecustomize", None)
    own = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != own]
    atexit.unregister(import_module("torch._dynamo.utils").dump_compile_times)
    for finalizer in list(vars(weakref.finalize)["_registry"]):  # of torch's operators: 0.06 s at each process's end
        finalizer.atexit = False
    gc.collect()
    gc.freeze()  # else a collection in each child writes to, and so copies, all of these objects
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    served: dict[int, tuple[int, socket.socket]] = {}
    needed: list[Any] = [listening, sys.stdin]
    while needed or served:
        clients = {client.fileno(): descriptor for descriptor, (_, client) in served.items()}
        ready, _, _ = select.select([*needed, *served, *clients], [], [])
        for told in set(clients) & set(ready):
            os.kill(*_told(*served[clients[told]]))
        for ended in set(served) & set(ready):
            _tell(ended, *served.pop(ended))
        if sys.stdin in ready:
            needed.clear()
        elif listening in ready and (request := _accept(listening, served)):
            _take_over(*request)
            return
    os._exit(0)


def _accept(listening: socket.socket, served: dict[int, tuple[int, socket.socket]]) -> "Request | None":
    """Take a connection and fork; return what is asked for in the new process, None in this one."""
    connection, _ = listening.accept()
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    size, asked = int.from_bytes(head, "big"), b""
    while len(asked) < size and (part := connection.recv(size - len(asked))):
        asked += part
    if asked and len(asked) == size:
        if not (process := os.fork()):
            for descriptor, (_, client) in served.items():
                os.close(descriptor)
                client.close()
            listening.close()
            connection.close()
            return files, json.loads(asked)
        served[os.pidfd_open(process)] = process, connection
    else:
        connection.close()
    for file in files:
        os.close(file)
    return None


def _told(process: int, client: socket.socket) -> tuple[int, int]:
    """Return a process and the signal that its client hands on, or what ends it: the client was killed."""
    with suppress(OSError):
        if number := client.recv(1):
            return process, number[0]
    return process, signal.SIGKILL


def _tell(descriptor: int, process: int, client: socket.socket) -> None:
    _, status = os.waitpid(process, 0)
    with suppress(OSError):  # it is gone
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    client.close()
    os.close(descriptor)


Request = tuple[list[int], tuple[list[str], dict[str, str], str]]
"""A client's open files; its arguments, environment and folder."""


def _take_over(files: Sequence[int], asked: tuple[list[str], dict[str, str], str]) -> None:
    """Make this process what the client would be, had it started Python."""
    arguments, environment, folder = asked
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    random.seed()
    sys.executable, *sys.argv = arguments
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    torch, numpy = import_module("torch"), import_module("numpy")
    torch.default_generator.seed()  # else what seeds nothing would draw the same as any other
    numpy.random.seed()
    if threads := environment.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        assert error.name == "sitecustomize"


def _run() -> None:
    """Run `-c CODE`, `-m MODULE` or a script, as Python does with these arguments."""
    if sys.argv[0] == "-u":
        sys.argv.pop(0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    match sys.argv:
        case ["-c", code, *_]:
            sys.argv[:2] = ["-c"]
            sys.path.insert(0, "")
            exec(code, {"__name__": "__main__", "__builtins__": __builtins__})
        case ["-m", module, *_]:
            sys.argv.pop(0)
            sys.path.insert(0, os.getcwd())  # noqa: PTH109
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *_]:
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")


def _status() -> int:
    """Run the command line; return its exit code."""
    try:
        _run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(status: int) -> None:
    """End as Python does, but for taking down all that was imported, which costs more than most scripts."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
    _end(_status())
