"""Training scripts in the shape of public ones, and the command line that records them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.warm import python

TOOL = Path(sys.executable).with_name("trainparity")

PLAIN = """
import argparse, torch
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--steps", type=int, default=1000)
args = parser.parse_args()

def main():
    torch.manual_seed(0)
    data = torch.randn(512, 8)
    target = data.sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    with torch.no_grad():
        model(data)  # evaluation before training
    for step in range(args.steps):
        batch = torch.arange(step * 16, (step + 1) * 16) % 512
        loss = nn.functional.mse_loss(model(data[batch]), target[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, flush=True)
    print("the script's end")

if __name__ == "__main__":
    main()
"""


def trainparity(
    *arguments: object, cwd: Path, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, from a warm Python."""
    return subprocess.run(
        [python(), "-m", "trainparity.cli", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def torchrun(ranks: int = 2, *libraries: str) -> str:
    """Return the beginning of a command that starts a script on some ranks, from a warm Python with these libraries."""
    return f"{python(*libraries)} -m torch.distributed.run --standalone --nproc-per-node {ranks}"


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    """Write a script."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
