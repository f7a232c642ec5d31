import math
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from tests.support.runs import configuration, spec, trainer_of
from trainparity import workloads
from trainparity.data import datasets
from trainparity.params import ImageFolder, Optimizer, Workload
from trainparity.validation import ParamsError
from trainparity.workloads import Batch, SampleRandomness
from trainparity.workloads.superres import Enlarger, SuperRes, enlarge
from trainparity.workloads.tanhexp import tanhexp

PUBLISHED_PARAMETERS = 364_931_587


def workload(**options: Any) -> SuperRes:
    made = workloads.load("superres", options)
    assert isinstance(made, SuperRes)
    return made


def images(count: int = 4, size: int = 48, seed: int = 0) -> Tensor:
    return torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def model_of(made: SuperRes, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return made.build_model({"images": images(1)})


class Constant(nn.Module):
    """A model that answers with a known image."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer
        self.seen: Tensor | None = None

    def forward(self, small: Tensor) -> Tensor:
        self.seen = small
        return self.answer


def test_the_published_number_of_parameters_is_met_exactly() -> None:
    with torch.device("meta"):
        model = workload(scale="article").build_model({"images": torch.empty(1, 3, 384, 384)})
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED_PARAMETERS


@pytest.mark.parametrize("upscale", [2, 4])
def test_it_enlarges_uint8_images(upscale: int) -> None:
    model = model_of(workload(upscale=upscale))
    large = enlarge(model, images(2, 16))
    assert large.shape == (2, 3, 16 * upscale, 16 * upscale) and large.dtype == torch.uint8
    assert not torch.equal(large[0], large[1])


def test_the_layers_do_what_their_names_say() -> None:
    """The whole network again, from its weights and torch's functions."""
    model = model_of(workload(upscale=2))
    weights = dict(model.named_parameters())

    def conv(x: Tensor, name: str, padding: int = 1) -> Tensor:
        return functional.conv2d(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"), padding=padding)

    small = torch.rand(2, 3, 8, 8)
    x = functional.pixel_unshuffle(functional.interpolate(small, size=(16, 16), mode="bicubic"), 4)
    norm = (weights["enter.2.weight"], weights["enter.2.bias"])
    start = x = tanhexp(functional.group_norm(conv(x, "enter.1"), 1, *norm))
    for block in range(2):
        name = f"trunk.parts.0.parts.{block}.body"
        x = x + tanhexp(conv(tanhexp(conv(x, f"{name}.0")), f"{name}.2"))
    x = start + tanhexp(conv(x, "trunk.parts.0.leave.0"))
    x = start + tanhexp(conv(x, "trunk.leave.0"))
    for stage in (0, 3):
        x = tanhexp(functional.pixel_shuffle(conv(x, f"leave.{stage}"), 2))
    torch.testing.assert_close(model(small), conv(x, "leave.6", padding=0).sigmoid())


def test_a_global_residual_starts_from_the_bicubic_image() -> None:
    model = model_of(workload(global_residual=True))
    assert isinstance(model, Enlarger)
    last = model.leave[-1]
    assert isinstance(last, nn.Conv2d)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    small = torch.rand(2, 3, 8, 8)
    bicubic = functional.interpolate(small, scale_factor=4, mode="bicubic")
    torch.testing.assert_close(model(small), bicubic.clamp(0.5 / 255, 1 - 0.5 / 255))


def test_both_activations_train_alike() -> None:
    losses, gradients = [], []
    for activation in ("function", "recomputed"):
        made = workload(activation=activation)
        model = model_of(made)
        loss = made.loss(model, {"images": images(2, 32)})
        loss.backward()
        losses.append(loss.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("activation", ["function", "recomputed"])
def test_the_loss_compiles_without_a_graph_break(activation: str) -> None:
    made = workload(activation=activation)
    model = model_of(made)
    batch = {"images": images(2, 32)}
    compiled = torch.compile(made.loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(model, batch), made.loss(model, batch))


def test_crops_are_parts_of_their_images_and_depend_on_seed_epoch_and_sample_alone() -> None:
    made, samples = workload(crop=8), torch.arange(16)
    whole = images(16)

    def crops(chosen: Tensor, seed: int = 0, epoch: int = 0) -> Tensor:
        return made.draw({"images": whole[chosen]}, SampleRandomness(seed, epoch, chosen))["images"]

    drawn = crops(samples)
    for image, crop in zip(whole, drawn, strict=True):
        places = image.unfold(1, 8, 1).unfold(2, 8, 1).permute(1, 2, 0, 3, 4)
        assert int((places == crop).flatten(2).all(2).sum()) == 1
    order = torch.tensor([3, 1, 15])
    assert torch.equal(crops(order), drawn[order])
    assert not torch.equal(crops(samples, epoch=1), drawn) and not torch.equal(crops(samples, seed=1), drawn)


def test_a_crop_can_be_the_whole_image() -> None:
    batch: Batch = {"images": images(3, 48)}
    cropped = workload(crop=48).draw(batch, SampleRandomness(0, 0, torch.arange(3)))
    assert torch.equal(cropped["images"], batch["images"])


def test_the_model_sees_the_image_shrunk_by_area() -> None:
    large = images(2, 32)
    model = Constant(large / 255)
    assert workload(upscale=4).loss(model, {"images": large}) == 0
    expected = (large / 255).unfold(2, 4, 4).unfold(3, 4, 4).mean((-1, -2))
    torch.testing.assert_close(model.seen, expected)


def test_the_loss_compares_pixels_and_second_differences_sample_by_sample() -> None:
    large = images(2, 8)
    answer = torch.rand(2, 3, 8, 8)
    column = torch.tensor([1.0, -2.0, 1.0]).reshape(1, 1, 3, 1).expand(3, 1, 3, 1)
    expected = 0.0
    for image, other in zip(large / 255, answer, strict=True):
        expected += float(functional.mse_loss(image, other))
        for kernel in (column, column.transpose(2, 3)):
            differences = [functional.conv2d(x, kernel, groups=3) for x in (image, other)]
            expected += float(functional.mse_loss(*differences))
    loss = workload().loss(Constant(answer), {"images": large})
    assert math.isclose(float(loss), expected, rel_tol=1e-5)


def test_the_residual_groups_are_what_is_sharded() -> None:
    made = workload(scale="laptop")
    model = model_of(made)
    assert isinstance(model, Enlarger)
    blocks = made.blocks(model)
    assert len(blocks) == 3
    held = sum(p.numel() for block in blocks for p in block.parameters())
    assert held > 0.7 * sum(p.numel() for p in model.parameters())


def test_an_image_smaller_than_the_crop_is_named() -> None:
    with pytest.raises(ParamsError, match=r"options.crop: 64 pixels of images that are 48 x 48; allowed: .* up to 48"):
        model_of(workload(crop=64))


def test_an_image_folder_trains(tmp_path: Path) -> None:
    (tmp_path / "images/any").mkdir(parents=True)
    for colour in ("navy", "teal", "maroon", "olive"):
        for copy in range(8):
            Image.new("RGB", (40, 50), colour).save(tmp_path / f"images/any/{colour}-{copy}.png")
    folder = ImageFolder(name="imagefolder", path=str(tmp_path / "images"), image_size=32)
    datasets.prepare(folder, tmp_path / "data", tmp_path)
    settings = spec(tmp_path, tmp_path / "data", "run", optimizer=Optimizer(name="radam", lr=1e-2))
    trainer = trainer_of(settings.model_copy(update={"workload": Workload(name="superres")}))
    batches = trainer.batches(0, 15, configuration().loader)
    losses = [float(trainer.step(step, micro_batches)) for step, micro_batches in enumerate(batches)]
    assert losses[-1] < 0.95 * losses[0]


def test_a_picture_shows_four_images_in_four_ways() -> None:
    workload = workloads.load("superres", {"scale": "smoke", "crop": 16, "upscale": 4})
    samples = {"images": torch.randint(16, (9, 3, 48, 40), dtype=torch.uint8), "samples": torch.arange(9)}
    samples["images"][1] *= 16  # of the first quarter, 0 to 2, the one with most detail
    picture = workload.picture(workload.build_model(samples).eval(), samples)
    assert picture is not None and picture.dtype == torch.uint8
    assert picture.shape == (3, 4 * (32 + 2) + 2, 4 * (32 + 2) + 2)
    # The originals stand on the right.
    assert torch.equal(picture[:, 2:34, 3 * 34 + 2 : 4 * 34], samples["images"][1, :, :32, :32])
