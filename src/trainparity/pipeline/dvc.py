"""DVC, which ends with the command that started it: `python -m trainparity.pipeline.dvc repro`."""

import signal
import sys

from trainparity.ownership import end_with_owner
from trainparity.parentage import end_with_parent

if __name__ == "__main__":
    end_with_owner(by=signal.SIGTERM)  # the next owner of the pipeline waits until it has ended
    end_with_parent()
    from dvc.cli import main  # a second, in which the parent may be killed

    sys.exit(main(sys.argv[1:]))
