"""Run by torchrun: train and record the two loops of a cause's page, `python -m ... <cause> <folder>`."""

import sys
from contextlib import ExitStack
from pathlib import Path

import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.test_pages_of_causes import loops
from trainparity import record

if __name__ == "__main__":
    cause, folder = sys.argv[1:]
    defined = loops(cause)
    dist.init_process_group("gloo")
    for name in ("before", "after"):
        with ExitStack() as ending:
            defined[name](
                lambda *of, at=f"{folder}/{name}", ending=ending: ending.enter_context(record(*of, at, interval=1)),
                dist.get_rank(),
                dist.get_world_size(),
            )
    dist.destroy_process_group()
