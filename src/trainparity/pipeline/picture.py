"""What a trained model makes, as an image file."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torchvision.io import write_png

from trainparity import workloads
from trainparity.data.store import load as load_data
from trainparity.params import Workload
from trainparity.records.files import replacing
from trainparity.workloads.checked import Checked


def draw(settings: Workload, weights: Path, prepared: Path, out: Path) -> bool:
    """Write `out`, a PNG file, if the workload has anything to show.

    Args:
        settings: The workload, as it was trained.
        weights: Its safetensors file.
        prepared: The dataset's folder.
    """
    workload, dataset = Checked(workloads.load(settings.name, settings.options)), load_data(prepared)
    model = workload.build_model(dataset.batch(torch.zeros(1, dtype=torch.int64)))
    model.load_state_dict(load_file(weights))
    picture = workload.picture(model.eval(), dataset.batch(torch.arange(len(dataset))))
    if picture is None:
        return False
    with replacing(out) as unfinished:
        write_png(picture, str(unfinished))
    return True
