"""The controls on several ranks, all in one process group: run by torchrun with the folder of the trials."""

import sys
from pathlib import Path

import torch.distributed as dist

from trainparity.controls.catalogue import RIGHT, WRONG


def main(folder: Path) -> None:
    """Train every line of `trials.txt`: loop, model, seed."""
    loops = {control.loop.__name__: control.loop for control in (*RIGHT, *WRONG)}
    dist.init_process_group("gloo")
    lines = (folder / "trials.txt").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        name, model, seed = line.split()
        loops[name](model, int(seed)).run(folder / f"{model}-{seed}" / name)
        if not number % 100 and dist.get_rank() == 0:
            print(f"{number} of {len(lines)} runs trained on two ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
