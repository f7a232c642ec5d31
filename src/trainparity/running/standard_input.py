"""What recorded commands read: each the same, as another input may make another training."""

import fcntl
import os
import stat
import subprocess
import termios

from trainparity import exits


class StandardInput:
    """This process's standard input for commands that run one after the other.

    A file is given to each from where it stands now; a pipe can be read only once, so of several commands none is given
    it.
    """

    def __init__(self, *, several: bool) -> None:
        try:
            mode = os.fstat(0).st_mode
        except OSError:  # closed
            mode = 0
        self._start = os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(mode) else None
        self._withheld = several and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        self._said = False

    def next(self, *, unattended: bool) -> int | None:
        """Return what the next command's standard input is to be, for `subprocess`.

        Args:
            unattended: Nobody sees what it prints, so it does not read from a terminal.
        """
        if self._start is not None:
            os.lseek(0, self._start, os.SEEK_SET)
            return None
        if self._withheld and not self._said and _waiting():
            self._said = True
            text = (
                "the commands read nothing from the pipe, which only one of them could: redirect a file, as in `< file`"
            )
            exits.say(f"trainparity: {text}")
        return subprocess.DEVNULL if unattended or self._withheld else None


def _waiting() -> bool:
    """Tell whether somebody has written into the pipe."""
    try:
        return any(fcntl.ioctl(0, termios.FIONREAD, bytes(4)))
    except OSError:
        return False
