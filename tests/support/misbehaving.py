"""Workloads that go wrong in a worker process, as a user's might."""

import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from tests.support.mlp import Mlp, MlpOptions
from trainparity.workloads import Batch


class MisbehavingOptions(MlpOptions):
    how: Literal[
        "raise", "kill", "kill-workers", "kill-parent", "slow", "hang", "exit", "os-exit", "segfault", "no-memory",
        "nan", "raise-and-linger", "start-method", "stop", "write",
    ]  # fmt: skip
    rank: int = 0
    after: int = 5


class Misbehaving(Mlp):
    """Does what `how` says from the loss call number `after` on, on one rank."""

    Options = MisbehavingOptions
    options: MisbehavingOptions
    calls = 0

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        self.calls += 1
        if self.calls > self.options.after and int(os.environ.get("RANK", "0")) == self.options.rank:
            match self.options.how:
                case "raise":
                    raise ValueError(f"no loss for\nsample {int(batch['samples'][0])}")
                case "raise-and-linger":
                    tempfile.TemporaryDirectory.cleanup = lambda _: time.sleep(5)  # type: ignore[method-assign]
                    raise ValueError("no loss, and much to clean up")
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "kill-workers":
                    for child in multiprocessing.active_children():
                        child.kill()
                        child.join()
                case "kill-parent":
                    os.kill(os.getppid(), signal.SIGKILL)
                    time.sleep(3600)
                case "start-method":
                    multiprocessing.set_start_method("spawn")  # it raises where one has been chosen
                    self.options = self.options.model_copy(update={"after": 10**6})
                case "stop":
                    os.kill(os.getpid(), signal.SIGTERM)
                case "write":
                    Path("/dev/full").write_text("no room")
                case "slow":
                    time.sleep(0.2)
                case "hang":
                    Path("hangs").touch()
                    time.sleep(3600)
                case "exit":
                    sys.exit(0)
                case "os-exit":
                    os._exit(0)
                case "segfault":
                    ctypes.string_at(0)
                case "nan":
                    return super().loss(model, batch) * float("nan")
                case "no-memory":
                    torch.empty(1 << 50)
        return super().loss(model, batch)
