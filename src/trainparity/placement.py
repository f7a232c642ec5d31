"""Which configurations can run on a machine, and where on it."""

from dataclasses import dataclass
from typing import Literal

from trainparity.environment import Environment
from trainparity.params import Configuration, DeviceKind


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a configuration runs here."""

    device: DeviceKind
    backend: Literal["gloo", "nccl"] | None
    """Of torch.distributed; None for one process."""
    num_threads: int
    """Intra-op threads of each process."""
    emulated: str | None
    """What is only imitated here, as a sentence; its timing means nothing then."""


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """Why a configuration can't run here, and what to do about it."""

    reason: str
    remedy: str


def accelerator(choice: Literal["auto", "cpu", "mps", "cuda"], environment: Environment) -> DeviceKind:
    """Resolve `auto` to the best device here; a pinned choice is returned as it is."""
    if choice != "auto":
        return choice
    best: tuple[DeviceKind, ...] = ("cuda", "mps")
    return next((kind for kind in best if environment.count(kind)), "cpu")


def place(
    configuration: Configuration, choice: Literal["auto", "cpu", "mps", "cuda"], environment: Environment
) -> Placement | Unavailable:
    """Decide where a configuration runs on a machine, or why it can't; asks the record alone, never torch."""
    device = accelerator(choice, environment) if configuration.device == "auto" else configuration.device
    replicas_fit = device == "cuda" and environment.count("cuda") >= configuration.world_size
    on_replicas = bool(configuration.replicas) and not replicas_fit
    problem = _missing_replicas(configuration, environment) if on_replicas else None
    if on_replicas:
        device = "cpu"
    problem = (
        problem
        or _missing_device(device, environment)
        or _missing_compiler(configuration, device, environment)
        or _missing_precision(configuration, device, environment)
        or _missing_backend(configuration, device, environment)
    )
    if problem:
        return problem
    return Placement(
        device=device,
        backend=_backend(configuration, device, environment),
        num_threads=max(
            1, environment.cores * environment.nodes // max(configuration.num_processes, environment.nodes)
        ),
        emulated=_emulated(configuration, device, on_replicas),
    )


def _emulated(configuration: Configuration, device: DeviceKind, on_replicas: bool) -> str | None:
    """Say everything that is only imitated, as one sentence."""
    facts, count = [], configuration.world_size
    if on_replicas:
        facts.append(f"{configuration.replicas} needs {count} GPUs; its algorithm runs over {count} CPU replicas")
    if device == "cpu" and configuration.offload != "none":
        facts.append("on the CPU offload moves nothing: the training is real, its offload is not")
    return "; ".join(facts) or None


def _missing_replicas(configuration: Configuration, environment: Environment) -> Unavailable | None:
    """Refuse to move replicas to the CPU from a GPU that they are pinned to."""
    if configuration.device in ("auto", "cpu"):
        return None
    have = environment.count("cuda")
    reason = f"{configuration.replicas} needs {configuration.world_size} NVIDIA GPUs; here are {have}"
    return Unavailable(reason=reason, remedy="set `device: auto`, which runs its algorithm over CPU replicas here")


def _missing_device(device: DeviceKind, environment: Environment) -> Unavailable | None:
    if device == "cpu" or environment.count(device):
        return None
    if device == "mps":
        reason = f"no Apple GPU that torch can use: the system is {environment.system} on {environment.machine}"
        return Unavailable(
            reason=reason, remedy="run on a Mac with Apple silicon, on the host (no container has Metal)"
        )
    if environment.cuda is None:
        reason = f"torch {environment.torch} is a build without CUDA"
        return Unavailable(reason=reason, remedy="install torch's CUDA build on a machine with an NVIDIA GPU")
    reason = "no NVIDIA GPU that torch can use here"
    return Unavailable(reason=reason, remedy="run on a machine with an NVIDIA GPU and a driver that `nvidia-smi` sees")


def _missing_compiler(configuration: Configuration, device: DeviceKind, environment: Environment) -> Unavailable | None:
    if configuration.compile == "none":
        return None
    old = [a.name for a in environment.accelerators if a.capability and int(a.capability.split(".")[0]) < 7]
    if device == "cuda" and old:
        reason = f"torch.compile needs an NVIDIA GPU of compute capability 7.0 or later, which {old[0]} is not"
        return Unavailable(reason=reason, remedy="set `compile: none`, or run on a Volta or later GPU")
    if device != "cpu" or environment.compiler:
        return None
    return Unavailable(
        reason="torch.compile on the CPU needs a C++ compiler", remedy="install g++ (clang++ on a Mac), or set CXX"
    )


def _missing_precision(
    configuration: Configuration, device: DeviceKind, environment: Environment
) -> Unavailable | None:
    precision = configuration.precision
    if precision == "fp64" and device == "mps":
        return Unavailable(reason="Apple GPUs have no float64", remedy="set `device: cpu`, or choose fp32")
    ampere = [a for a in environment.accelerators if a.capability and int(a.capability.split(".")[0]) >= 8]
    old = device == "cuda" and len(ampere) < environment.count("cuda")
    if (precision == "tf32" and (device != "cuda" or old)) or (precision == "bf16" and old):
        reason = f"{precision} needs an NVIDIA GPU of compute capability 8.0 or later"
        return Unavailable(reason=reason, remedy="run on an Ampere or later GPU, or choose fp32")
    return None


def _missing_backend(configuration: Configuration, device: DeviceKind, environment: Environment) -> Unavailable | None:
    if not configuration.distributed:
        return None
    if device == "mps":
        return Unavailable(reason="torch.distributed has no backend for Apple GPUs", remedy="set `device: cpu`")
    enough = device == "cuda" and environment.nodes * environment.count("cuda") >= configuration.world_size
    if configuration.backend == "nccl" and not enough:
        reason = f"NCCL wants a GPU for each of the {configuration.world_size} ranks"
        return Unavailable(reason=reason, remedy="set `backend: auto`, which takes gloo here")
    return None


def _backend(
    configuration: Configuration, device: DeviceKind, environment: Environment
) -> Literal["gloo", "nccl"] | None:
    if not configuration.distributed:
        return None
    if configuration.backend != "auto":
        return configuration.backend
    # NCCL refuses ranks that share a GPU.
    return (
        "nccl"
        if device == "cuda" and environment.nodes * environment.count("cuda") >= configuration.world_size
        else "gloo"
    )
