"""What part this process has in a training."""

import os
import sys


def name_of_training() -> str:
    """Return a name that all ranks of one process group share, and no other training has.

    They agree through the group's store, not in a collective: ranks may come here at different times.
    """
    import torch.distributed as dist

    own = str(os.getpid())
    if not (dist.is_available() and dist.is_initialized()):
        return own
    store = dist.distributed_c10d._get_default_store()
    return bytes(store.compare_set("trainparity", "", own)).decode()


def loads_data() -> bool:
    """Tell whether this process is a worker of a DataLoader."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
