"""DVC, which ends with the command that started it: `python -m trainparity.pipeline.dvc repro`."""

import sys

from trainparity.parentage import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    from dvc.cli import main  # a second, in which the parent may be killed

    sys.exit(main(sys.argv[1:]))
