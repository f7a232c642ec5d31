"""Machines of all kinds, as their records."""

from trainparity.environment import Accelerator, Environment

LINUX = Environment(
    system="Linux", machine="x86_64", python="3.11.7", torch="2.15.0", torchvision="0.29.2", cuda="13.2",
    processor="A processor", cores=8, accelerators=[], compiler="g++ 12", nodes=1, image=None,
)  # fmt: skip


def gpus(count: int, capability: str = "9.0") -> Environment:
    gpu = Accelerator(kind="cuda", name="A GPU", memory_mib=1000, capability=capability)
    return LINUX.model_copy(update={"accelerators": [gpu] * count})


APPLE = LINUX.model_copy(
    update={
        "system": "Darwin",
        "cuda": None,
        "accelerators": [Accelerator(kind="mps", name="M2", memory_mib=1000)],
    }
)
MACHINES = {
    "cpu": LINUX,
    "bare": LINUX.model_copy(update={"compiler": None, "cuda": None}),
    "one": gpus(1),
    "two": gpus(2),
    "one without g++": gpus(1).model_copy(update={"compiler": None}),
    "old": gpus(1, "7.0"),
    "ancient": gpus(1, "6.1"),
    "apple": APPLE,
}
