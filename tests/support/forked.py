"""Scripts in processes of their own, forked from one that has imported slow libraries already."""

import multiprocessing
import os
import runpy
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path


class Forked:
    """Runs scripts, each in processes forked from one that does nothing else."""

    def __init__(self, folder: Path, libraries: Sequence[str]) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(libraries))

    def run(self, script: Path, *arguments: str, ranks: int = 1, **environment: str) -> None:
        """Run a script to its end, on several ranks with the variables that torchrun sets; fail with what it wrote."""
        with socket.create_server(("localhost", 0)) as free:
            port = str(free.getsockname()[1])
        processes = []
        for rank in range(ranks):
            places = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
            }
            launched = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
            variables = {**os.environ, **environment, **(places | launched if ranks > 1 else {})}
            output = self._folder / f"output-{rank}.txt"
            processes.append(self._context.Process(target=_main, args=(str(script), arguments, variables, str(output))))
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        said = "\n".join((self._folder / f"output-{rank}.txt").read_text()[-4000:] for rank in range(ranks))
        assert [process.exitcode for process in processes] == [0] * ranks, said


@contextmanager
def forked(folder: Path, *libraries: str) -> Iterator[Forked]:
    """Have a process with these libraries for as long as this lasts."""
    try:
        yield Forked(folder, libraries)
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]


def _main(script: str, arguments: Sequence[str], variables: dict[str, str], output: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")
