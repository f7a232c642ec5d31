"""What this machine and image offer, and a stable fingerprint of it."""

import ctypes
import hashlib
import os
import platform
import runpy
import shlex
import shutil
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainparity import extras
from trainparity.errors import UserError
from trainparity.params import DeviceKind
from trainparity.records.base import Record

IMAGE = Path("/etc/trainparity/image")
"""Written into our images by docker/describe.py."""


NODES = "TRAINPARITY_NODES"
"""Environment variable: how many machines a distributed run is spread over."""

_MOST_NODES = 65_536


class Accelerator(Record):
    """A GPU that torch can use."""

    kind: DeviceKind
    """`cuda` or `mps`."""
    name: str
    """Model."""
    memory_mib: int
    """Its memory in MiB."""
    capability: str | None = None
    """CUDA compute capability, for example `9.0`."""


class Environment(Record):
    """Stable facts only: two calls on one machine give the same."""

    system: str
    """Operating system."""
    machine: str
    """Processor architecture, for example `x86_64`."""
    python: str
    """Version."""
    torch: str
    """Version."""
    torchvision: str | None
    """Version; null where it is not installed."""
    cuda: str | None
    """The CUDA version that torch was built for; null for a build without."""
    processor: str
    """The processor's model."""
    cores: int
    """Cores that this process may use."""
    accelerators: list[Accelerator]
    """GPUs that torch can use."""
    compiler: str | None
    """C++ compiler that torch.compile needs on the CPU."""
    nodes: int
    """Machines that ranks are spread over."""
    image: str | None
    """Hash of everything that is installed in the container's image; null on the host."""

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over all facts: results of one are never served as another's."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @property
    def main_device(self) -> str:
        """The name of the first accelerator, or of the processor where there is none."""
        return next((accelerator.name for accelerator in self.accelerators), self.processor)

    def count(self, kind: DeviceKind) -> int:
        """Count the accelerators of a kind."""
        return sum(a.kind == kind for a in self.accelerators)


def usable_cores() -> int:
    """Count the cores this process may use; macOS can't restrict them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def detect() -> Environment:
    """Ask the system what is here, and torch where it may find a GPU; importing torch takes a second or two."""
    build = _torch_build()
    return Environment(
        system=platform.system(),
        machine=platform.machine(),
        python=platform.python_version(),
        torch=build["__version__"],
        torchvision=version("torchvision") if extras.is_there("torchvision") else None,
        cuda=build["cuda"],
        processor=_processor(),
        cores=usable_cores(),
        accelerators=_accelerators() if _may_find_a_gpu(build) else [],
        compiler=_compiler(),
        nodes=num_nodes(),
        image=IMAGE.read_text(encoding="utf-8").strip() if IMAGE.exists() else None,
    )


def num_nodes() -> int:
    """Return how many machines ranks are spread over."""
    text = os.environ.get(NODES) or "1"
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_NODES:
        raise UserError(f"the environment variable {NODES} is {text!r}; it must be a number from 1 to {_MOST_NODES:,}")
    return int(text)


def _torch_build() -> dict[str, Any]:
    """Return what torch's file `version.py` says of its build, without importing torch."""
    spec = find_spec("torch")
    assert spec and spec.origin
    return runpy.run_path(str(Path(spec.origin).with_name("version.py")))


def _may_find_a_gpu(build: dict[str, Any]) -> bool:
    """Tell whether torch is worth asking: on Linux a CUDA build finds no GPU without the driver's library."""
    if platform.system() != "Linux" or build.get("hip"):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return build["cuda"] is not None


def _accelerators() -> list[Accelerator]:
    import torch

    found = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            found.append(
                Accelerator(
                    kind="cuda",
                    name=properties.name,
                    memory_mib=properties.total_memory >> 20,
                    capability=f"{properties.major}.{properties.minor}",
                )
            )
    if torch.backends.mps.is_available():
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        found.append(Accelerator(kind="mps", name=_processor(), memory_mib=memory))
    return found


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return platform.processor() or platform.machine()


def _compiler() -> str | None:
    """Return the first line of the version of the C++ compiler that torch.compile would call; None without it."""
    # Inductor's choice: it looks for no other where this one is missing.
    name = os.environ.get("CXX", "clang++" if platform.system() == "Darwin" else "g++")
    command = shlex.split(name)  # CXX may hold arguments, as in `ccache g++`
    if not command or not shutil.which(command[0]):
        return None
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return next(iter(done.stdout.splitlines()), name) if done.returncode == 0 else None
