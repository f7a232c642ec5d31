"""Stage `probe`: what this machine and image offer."""

import sys
from pathlib import Path

from trainparity import environment
from trainparity.launch.containers import here_or_contained, image_of_engine, look
from trainparity.stage import exit_code


def probe() -> None:
    found = environment.detect()
    found.write(Path("runs/environment.json"))
    gpus = ", ".join(a.name for a in found.accelerators) or "no GPU"
    print(f"{found.processor}, {found.cores} cores, {gpus}, torch {found.torch}: {found.fingerprint}")


def main() -> None:
    here_or_contained(probe, image_of_engine)
    look().write(Path("runs/engine.json"))


if __name__ == "__main__":
    sys.exit(exit_code(main))
