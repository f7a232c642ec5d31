"""Why a run's ranks died: the first death is blamed, not the peers that lost their connection to it."""

import math
import re
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainparity import hiding
from trainparity.launch.supervision import GRACE_S
from trainparity.training.spec import CRASH, ENDED, EXIT_INTERRUPTED, EXIT_NO_ROOM, STACKS, Failure

_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_MEANING = {
    signal.SIGSEGV: "a segmentation fault, of compiled code",
    signal.SIGBUS: "often a full /dev/shm, or a file that was cut short while it was mapped",
    signal.SIGABRT: "compiled code gave up; its message is above",
    signal.SIGILL: "an instruction that this processor lacks",
    signal.SIGFPE: "an integer divided by zero in compiled code",
}
"""Those of compiled code: `faulthandler` tells of these, and of no others."""
_MEMORY = "; fewer samples at once need less memory: twice the accumulation_steps are the same training"
_OUT_OF_MEMORY = ("OutOfMemoryError", "can't allocate memory", "MemoryError")


class Machine:
    """Counts the processes that the kernel ended for want of memory since it was made."""

    _COUNTS = (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat"))

    def __init__(self) -> None:
        self._before = self._killed()

    def ran_out_of_memory(self) -> bool | None:
        """Tell whether there was one; None where the kernel does not say."""
        now = self._killed()
        return None if now is None or self._before is None else now > self._before

    def _killed(self) -> int | None:
        found = [
            int(line.split()[1])
            for path in self._COUNTS
            if path.exists()
            for line in path.read_text().splitlines()
            if line.startswith("oom_kill ")
        ]
        return sum(found) if found else None


def for_want_of_room(work: Path, codes: dict[int, int]) -> bool:
    """Tell whether a rank died as the machine refused to write a file: there may be room the next time."""
    return EXIT_NO_ROOM in codes.values() or any(report.no_room for report in _reports(work).values())


def _reports(work: Path) -> dict[int, Failure]:
    """Return what ranks said of their deaths, the first death first."""
    failures = [Failure.read(path) for path in work.glob("failure-*.json")]
    return {failure.rank: failure for failure in sorted(failures, key=lambda failure: failure.time)}


def reason(work: Path, codes: dict[int, int], ranks: Iterable[int], machine: Machine) -> str:
    """Say in one line why a run failed.

    Args:
        work: Its work folder.
        codes: Exit codes of the ranks that failed, a signal's number negated.
        ranks: The ranks of this machine.
        machine: Made before the run started.
    """
    reports = _reports(work)
    for report in reports.values() if not for_want_of_room(work, codes) else ():
        print(report.traceback, end="\n" if report.traceback else "", file=sys.stderr)
    stuck = _Stuck(work)
    own = next((report for report in reports.values() if not _is_echo(report)), None)
    if own and own.time <= stuck.since:  # after it the others hang, or are ended by what watches over them
        return _sentence(own)
    if stuck.places:
        return stuck.sentence()
    gone = [rank for rank in ranks if rank not in {*codes, *reports} and not (work / ENDED.format(rank)).exists()]
    # A rank that could say nothing died before those that lost their connection to it. The first code came first.
    silent = [rank for rank in codes if rank not in reports and not _by_launcher(rank, codes, reports)]
    if silent:
        return _death(silent[0], codes[silent[0]], machine) + _crashed_in(work, silent[0], codes[silent[0]])
    if gone:
        return f"rank {gone[0]} ended with exit code 0 before its training did, as by os._exit(0)"
    if reports:
        return _sentence(next(iter(reports.values())))
    if not codes:  # several machines, of which this one knows its own ranks only
        return "no rank of this machine failed, but no rank wrote a result"
    rank, code = next(iter(codes.items()))
    return _death(rank, code, machine) + _crashed_in(work, rank, code)


_ECHO = re.compile(r"torch/distributed/|gloo|NCCL|Connection (closed|reset|refused)|Broken pipe|DistNetworkError")
"""At the end of the traceback of a rank that lost another."""


_OWN = re.compile(r"(NotImplemented|Type|Value|Assertion|Key|Attribute|Index)Error\b")
"""Of a module, say, that torch.distributed refuses to shard or split: no lost connection is one of these."""


def _is_echo(report: Failure) -> bool:
    return not _OWN.match(report.message) and _ECHO.search("\n".join(report.traceback.splitlines()[-4:])) is not None


def _sentence(report: Failure) -> str:
    memory = _MEMORY if any(word in report.message for word in _OUT_OF_MEMORY) else ""
    return f"rank {report.rank}: {report.message}{memory}"


def _by_launcher(rank: int, codes: Mapping[int, int], reports: Mapping[int, Failure]) -> bool:
    """Tell whether the launcher ended a rank, as another had failed: by SIGTERM, and after its grace by SIGKILL."""
    if codes[rank] == -signal.SIGKILL:
        waited = bool(reports) and time.time() - min(report.time for report in reports.values()) >= GRACE_S
        return waited and rank != next(iter(codes))
    return codes[rank] in (-signal.SIGTERM, EXIT_INTERRUPTED)


def _death(rank: int, code: int, machine: Machine) -> str:
    if code == EXIT_NO_ROOM:
        return f"rank {rank} could write no file, nor where: the file system is full, or can't be written"
    if code >= 0:
        files = hiding.files() if code == 1 else []
        hidden = f", or as {', '.join(files)} here hides what it imports under that name: rename it" if files else ""
        return f"rank {rank} ended with exit code {code} and no message, as by os._exit({code}){hidden}"
    number = signal.Signals(-code)
    text = f"rank {rank} was ended by {number.name}"
    if number != signal.SIGKILL:
        return f"{text} ({_MEANING[number]})" if number in _MEANING else text
    match machine.ran_out_of_memory():
        case True:
            return f"{text} as the system ran out of memory{_MEMORY}"
        case False:
            return f"{text}, not by the kernel for want of memory: something else sent it"
        case None:
            return f"{text} (the system may have run out of memory)"


def _crashed_in(work: Path, rank: int, code: int) -> str:
    """Say where the Python of the thread was whose compiled code crashed and ended a rank, if that is known."""
    path = work / CRASH.format(rank)
    if -code not in _MEANING or not path.exists():
        return ""
    text = _read(path)
    print(text, end="", file=sys.stderr)
    # Without this mark a thread crashed that no Python runs in: where the others were tells nothing of it.
    dumps = re.findall(r"^Current thread .*\n((?:  .*\n)*)", text, re.MULTILINE)
    frames = [*_FRAME.finditer(dumps[-1])] if dumps else []
    place = _innermost([frame for frame in frames if not re.search(_PYTHONS_AND_OURS, frame["file"])])
    return f", called from {place}" if place else ""


_ESCAPED = re.compile(r"\\(?:x[\da-f]{2}|u[\da-f]{4}|U00(?:0[\da-f]|10)[\da-f]{4})")


def _read(path: Path) -> str:
    """Return what `faulthandler` wrote, with the letters beyond ASCII that it escapes."""
    return _ESCAPED.sub(_unescaped, path.read_text(encoding="utf-8"))


def _unescaped(found: re.Match[str]) -> str:
    letter = chr(int(found[0][2:], 16))
    return letter if letter.isprintable() else found[0]  # others, as half of a pair, can't be written to a file


class _Stuck:
    """Where ranks were when a step took longer than its deadline."""

    def __init__(self, work: Path) -> None:
        written = {path: _read(path) for path in sorted(work.glob(STACKS.format("*")))}
        stacks = {path: text for path, text in written.items() if text}
        places = {path.stem.rpartition("-")[2]: _Place(text) for path, text in stacks.items()}
        # A rank that ended while its stacks were written has none.
        self.places = {rank: place for rank, place in places.items() if place.name} or places
        self.since = min((path.stat().st_mtime for path in stacks), default=math.inf)
        """Seconds since 1970; infinity if none was stuck."""
        for text in stacks.values():
            print(text, file=sys.stderr)

    def sentence(self) -> str:
        """Say who was where, those that did not only wait for others first."""
        busy = [f"rank {rank} was in {place.name}" for rank, place in self.places.items() if not place.waits]
        waiting = [f"rank {rank} waited in {place.name}" for rank, place in self.places.items() if place.waits]
        return f"no step ended in {next(iter(self.places.values())).limit}: {'; '.join(busy + waiting)}"


_PYTHONS_AND_OURS = rf"/lib/python[\d.]+/(?!site-packages/)|^<frozen |^{re.escape(str(Path(__file__).parents[1]))}/"
_LIBRARIES = rf"site-packages|/lib/python|{_PYTHONS_AND_OURS}"
_WAITING = ("_engine_run_backward",)


class _Place:
    """Where the main thread of a rank was, from what `faulthandler` wrote."""

    def __init__(self, text: str) -> None:
        found = re.search(r"Timeout \((.+?)\)", text)
        self.limit = found[1] if found else "its deadline"
        threads = re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)
        # Other threads come first, so a process that ended while this was written may have left theirs alone.
        frames = next((those for thread in threads if _is_main(those := [*_FRAME.finditer(thread)])), [])
        self.name = _innermost(frames)
        self.waits = any(f["function"] in _WAITING or "torch/distributed/" in f["file"] for f in frames)
        """Whether a backward pass or a collective, where a rank waits for the others, was under way."""


def _innermost(frames: list[re.Match[str]]) -> str:
    """Name the innermost frame of the user's, or of any where none is; empty: there are no frames."""
    own = [frame for frame in frames if not re.search(_LIBRARIES, frame["file"])]
    place = next(iter(own or frames), None)
    return f"{_short(place['file'])}:{place['line']} {place['function']}" if place else ""


def _is_main(frames: list[re.Match[str]]) -> bool:
    return any(frame["file"].endswith("trainparity/training/worker.py") for frame in frames)


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
