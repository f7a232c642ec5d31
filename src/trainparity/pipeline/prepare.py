"""The dataset of a params file, whether it is ours or the workload's own."""

import traceback
from pathlib import Path

from torch import Tensor

from trainparity import workloads
from trainparity.data import datasets
from trainparity.data.prepared import Manifest
from trainparity.data.store import write as write_prepared
from trainparity.errors import UserError
from trainparity.params import Own, Params
from trainparity.validation import ParamsError


def prepare(params: Params, out: Path, downloads: Path, path: Path = Path("params.yaml")) -> Manifest:
    """Write the dataset's tensor files and manifest as `out`; `path` only names the params file in errors.

    Raises:
        DataError: the data can't be fetched or read; `out` is as it was.
        ParamsError: the dataset is `own` and the workload brings none.
    """
    if not isinstance(params.dataset, Own):
        return datasets.prepare(params.dataset, out, downloads)
    workload = workloads.load(params.workload.name, params.workload.options, path)
    try:
        tensors = workload.data()
    except (UserError, MemoryError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:  # of the user's own code
        traceback.print_exc()
        name = params.workload.name
        raise ParamsError(
            f"{path}: dataset.name: own: `data` of {name} ended with {type(error).__name__}: {error}"
        ) from None
    if not tensors:
        raise ParamsError(
            f"{path}: dataset.name: own, but {params.workload.name} has no `data` method that returns any"
        )
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or not tensor.ndim or not len(tensor):
            raise ParamsError(f"{path}: dataset.name: own: {name!r} is no tensor [N, ...] of at least one sample")
    lengths = {name: len(tensor) for name, tensor in tensors.items()}
    if len(set(lengths.values())) > 1:
        raise ParamsError(f"{path}: dataset.name: own: tensors of unequal length: {lengths}")
    return write_prepared(out, "own", tensors, source=f"{params.workload.name}'s own", real=True)
