"""How one optimizer step over one global batch is executed."""

from trainparity.strategies.base import Execution, Strategy
from trainparity.strategies.data_parallel import DataParallel
from trainparity.strategies.ddp import Ddp
from trainparity.strategies.fsdp import Fsdp

__all__ = ["STRATEGIES", "Execution", "Strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    "single": Strategy,
    "data_parallel": DataParallel,
    "ddp": Ddp,
    "fsdp": Fsdp,
}
