"""One run over several machines that share the project's folder, by torchrun's rendezvous.

The first node runs the pipeline; on the others `trainparity join` waits for each run's invitation and starts its share
of the ranks. (torch.distributed.elastic, c10d rendezvous: https://pytorch.org/docs/stable/elastic/rendezvous.html)
"""

import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainparity.environment import num_nodes
from trainparity.errors import UserError
from trainparity.records.base import Record

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

RENDEZVOUS = "TRAINPARITY_RENDEZVOUS"
"""Environment variable: host:port of the first node, the same on every node."""

_INVITATION = Path(".trainparity/invitation.json")
_POLL_S = 0.2


class Invitation(Record):
    """What the other nodes need to take part in a run."""

    run_id: str
    spec: Path
    num_processes: int
    """Ranks of all nodes together."""


@dataclass(frozen=True)
class Nodes:
    """The machines that a run is spread over, and where they meet."""

    count: int
    endpoint: str

    @classmethod
    def from_environment(cls) -> "Nodes":
        """Read TRAINPARITY_NODES and TRAINPARITY_RENDEZVOUS; raise `UserError` if they contradict each other."""
        count, endpoint = num_nodes(), os.environ.get(RENDEZVOUS, "")
        if count == 1:
            return cls(1, "localhost:0")
        if ":" not in endpoint:
            raise UserError(f"{RENDEZVOUS} is {endpoint!r}; with {count} nodes it must be host:port of the first")
        return cls(count, endpoint)

    def launch_config(self, invitation: Invitation, *, first: bool, grace_s: int) -> "LaunchConfig":
        """Return torchrun's settings for this node's share of the ranks.

        Args:
            invitation: The run.
            first: Whether this node hosts the rendezvous.
            grace_s: Seconds that a stopped rank has until it is killed; they hold for every launch of this process.
        """
        from torch.distributed.launcher.api import LaunchConfig

        if invitation.num_processes % self.count:
            raise UserError(
                f"{invitation.num_processes} ranks can't be spread evenly over {self.count} nodes: "
                f"set world_size to a multiple of {self.count}"
            )
        return LaunchConfig(
            min_nodes=self.count,
            max_nodes=self.count,
            nproc_per_node=invitation.num_processes // self.count,
            run_id=invitation.run_id,
            rdzv_backend="c10d",
            rdzv_endpoint=self.endpoint,
            rdzv_configs={"is_host": first} if self.count > 1 else {},
            local_addr="localhost" if self.count == 1 else None,
            max_restarts=0,
            monitor_interval=0.1,
            **_grace(grace_s),
        )


def _grace(seconds: int) -> dict[str, Any]:
    """Set how long torchrun waits for stopped ranks before it kills them; return the settings for `LaunchConfig`.

    torch 2.11 has no such setting: it always calls `PContext.close` without `timeout`. Later versions have one, and do
    the same only where one rank ended by itself and the others are stopped. So the default of `timeout`, 30 seconds,
    is changed in all versions.
    """
    from torch.distributed.elastic.multiprocessing import PContext
    from torch.distributed.launcher.api import LaunchConfig

    *others, _ = PContext.close.__defaults__ or (None, None)  # (death_sig, timeout)
    PContext.close.__defaults__ = (*others, seconds)
    return {"shutdown_timeout": seconds} if "shutdown_timeout" in LaunchConfig.__dataclass_fields__ else {}


def invite(spec: Path, num_processes: int, nodes: Nodes) -> Invitation:
    """Make a run's invitation; with several nodes, write it where the other nodes read it."""
    invitation = Invitation(run_id=uuid.uuid4().hex, spec=spec, num_processes=num_processes)
    if nodes.count > 1:
        invitation.write(_INVITATION)
    return invitation


def join(nodes: Nodes, run: Callable[[Invitation], object]) -> None:
    """Wait for the first node's runs and take part in each, until stopped."""
    last = None
    while True:
        # The first node writes the invitation before it listens, so the one that is read now is current.
        if _listens(nodes.endpoint) and _INVITATION.exists():
            invitation = Invitation.read(_INVITATION)
            if invitation.run_id != last:
                last = invitation.run_id
                run(invitation)
        time.sleep(_POLL_S)


def _listens(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False
