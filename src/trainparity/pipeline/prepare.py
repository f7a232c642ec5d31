"""The dataset of a params file, whether it is ours or the workload's own."""

from pathlib import Path

from trainparity import workloads
from trainparity.data import datasets
from trainparity.data.manifest import Manifest
from trainparity.data.store import write as write_prepared
from trainparity.params import Own, Params
from trainparity.validation import ParamsError


def prepare(params: Params, out: Path, downloads: Path, path: Path = Path("params.yaml")) -> Manifest:
    """Write the dataset's tensor files and manifest as `out`; `path` only names the params file in errors.

    Raises:
        DataError: the data can't be fetched or read; `out` is as it was.
        ParamsError: the dataset is `own` and the workload brings none, or a file that it is said to read is not there;
            or there are fewer samples than the settings ask for, and `out` is written all the same.
    """
    manifest = _prepare(params, out, downloads, path)
    params.check_samples(manifest.samples, path)
    return manifest


def _prepare(params: Params, out: Path, downloads: Path, path: Path) -> Manifest:
    if not isinstance(params.dataset, Own):
        return datasets.prepare(params.dataset, out, downloads)
    for name in params.dataset.files:
        if not Path(name).exists():
            raise ParamsError(f"{path}: dataset.files: {name}: no such file or folder")
    workload = workloads.load(params.workload.name, params.workload.options, path)
    tensors = workloads.own_data(workload, path)
    if not tensors:
        raise ParamsError(
            f"{path}: dataset.name: own, but {params.workload.name} has no `data` method that returns any"
        )
    return write_prepared(out, "own", tensors, source=f"{params.workload.name}'s own", real=True)
