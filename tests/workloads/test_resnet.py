from pathlib import Path

import pytest
import torch
import torchvision
from torch import Tensor, nn

from tests.support.images import accuracy_after, digits, images, num_parameters
from tests.support.runs import Reference, configuration, prepared, train
from trainparity.records.verdict import Verdict
from trainparity.workloads import SampleRandomness, load
from trainparity.workloads.resnet import crop_and_flip


@pytest.mark.parametrize(("depth", "published"), [(18, 11_173_962), (50, 23_520_842), (101, 42_512_970)])
def test_cifar_variants_have_the_published_number_of_parameters(depth: int, published: int) -> None:
    with torch.device("meta"):
        model = load("resnet", {"depth": depth}).build_model(images(1, 3, 32, 32))
    assert num_parameters(model) == published


@pytest.mark.parametrize("depth", [18, 50])
def test_with_the_imagenet_stem_it_is_torchvisions_own(depth: int) -> None:
    torch.manual_seed(0)
    ours = load("resnet", {"depth": depth, "stem": "imagenet", "classes": 1000}).build_model(images(1, 3, 64, 64))
    torch.manual_seed(0)
    theirs = torchvision.models.get_model(f"resnet{depth}")
    left, right = ours.state_dict(), theirs.state_dict()
    assert list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)
    x = torch.rand(2, 3, 64, 64)
    assert torch.equal(ours(x), theirs(x))


def test_the_cifar_stem_keeps_the_resolution() -> None:
    seen: list[torch.Size] = []
    model = load("resnet", {"width": 8}).build_model(images(1, 1, 32, 32))
    model.get_submodule("layer1").register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape))
    model(torch.rand(2, 1, 32, 32))
    assert seen == [(2, 8, 32, 32)]


@pytest.mark.parametrize(("depth", "count"), [(18, 8), (50, 16), (101, 33)])
def test_its_blocks_hold_all_weights_but_the_stems_and_the_heads(depth: int, count: int) -> None:
    workload = load("resnet", {"depth": depth, "width": 8})
    model = workload.build_model(images(1, 1, 8, 8))
    blocks = workload.blocks(model)
    rest = num_parameters(model.get_submodule("conv1")) + num_parameters(model.get_submodule("bn1"))
    rest += num_parameters(model.get_submodule("fc"))
    assert len(blocks) == count
    assert sum(num_parameters(block) for block in blocks) == num_parameters(model) - rest


@pytest.mark.parametrize(("norm", "kind"), [("batch", nn.BatchNorm2d), ("group", nn.GroupNorm)])
def test_all_its_norms_are_of_the_chosen_kind(norm: str, kind: type[nn.Module]) -> None:
    model = load("resnet", {"width": 8, "norm": norm}).build_model(images(1, 1, 8, 8))
    norms = {type(m) for m in model.modules() if isinstance(m, (nn.modules.batchnorm._BatchNorm, nn.GroupNorm))}
    assert norms == {kind}


def cropped_one_by_one(batch: Tensor, padding: int, corner: Tensor, flip: Tensor) -> Tensor:
    height, width = batch.shape[2:]
    out = torch.zeros_like(batch)
    for i, image in enumerate(batch):
        for y in range(height):
            for x in range(width):
                row = y + int(corner[i, 0]) - padding
                column = (width - 1 - x if flip[i] else x) + int(corner[i, 1]) - padding
                if 0 <= row < height and 0 <= column < width:
                    out[i, :, y, x] = image[:, row, column]
    return out


def test_images_are_cropped_out_of_their_padding_and_mirrored() -> None:
    batch = images(6, 3, 8, 10)["images"]
    corner = torch.tensor([[0, 0], [8, 8], [4, 4], [4, 4], [1, 7], [5, 2]])
    flip = torch.tensor([False, True, False, True, True, False])
    found = crop_and_flip(batch, 4, corner, flip)
    assert found.dtype == torch.uint8 and torch.equal(found, cropped_one_by_one(batch, 4, corner, flip))
    assert torch.equal(found[2], batch[2]) and torch.equal(found[3], batch[3].flip(2))


def test_an_augmented_image_does_not_depend_on_how_the_batch_is_cut() -> None:
    workload, batch = load("resnet", {}), images(12, 3, 32, 32)

    def augmented(indices: list[int], epoch: int = 0) -> Tensor:
        part = {name: tensor[indices] for name, tensor in batch.items()}
        return workload.draw(part, SampleRandomness(0, epoch, part["samples"]))["images"]

    whole = augmented(list(range(12)))
    assert torch.equal(torch.cat([augmented([7, 3, 11]), augmented([0])]), whole[[7, 3, 11, 0]])
    assert not torch.equal(whole, augmented(list(range(12)), epoch=1))


def test_every_crop_in_both_orientations_is_as_likely() -> None:
    """One pixel of CIFAR's 32x32 stays in sight of all 9x9 crops: it is drawn at 2 x 81 places."""
    pixel = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    pixel[0, 0, 15, 10] = 1
    samples = torch.arange(8100)
    batch = {"images": pixel.expand(8100, -1, -1, -1), "samples": samples}
    drawn = load("resnet", {}).draw(batch, SampleRandomness(0, 0, samples))["images"]
    counts = drawn.sum(0, dtype=torch.int64)[0]
    rows, columns = counts.nonzero(as_tuple=True)
    assert sorted(set(rows.tolist())) == list(range(11, 20))
    assert sorted(set(columns.tolist())) == [*range(6, 15), *range(17, 26)]
    assert counts.sum() == 8100 and counts[counts > 0].min() > 20 and counts.max() < 90  # 50 expected


def test_without_augmentation_nothing_is_drawn() -> None:
    batch = images(2, 3, 8, 8)
    assert load("resnet", {"augment": False}).draw(batch, SampleRandomness(0, 0, batch["samples"])) == {}


def test_it_learns_the_digits(tmp_path: Path) -> None:
    assert accuracy_after(load("resnet", {"width": 8}), digits(tmp_path), steps=60) > 0.5


def judged(folder: Path, norm: str) -> Verdict:
    """Hold two micro-batches against the whole batch."""
    options = {"width": 8, "norm": norm}
    reference = Reference(folder, prepared(folder), workload="resnet", options=options, steps=3)
    return reference.judge(train(reference.candidate("cut", configuration(accumulation_steps=2))))


@pytest.mark.slow
def test_with_groupnorm_every_cut_of_the_batch_is_the_same_training(tmp_path: Path) -> None:
    assert judged(tmp_path, "group").verdict == "equivalent"


@pytest.mark.slow
def test_with_batchnorm_it_is_not_and_that_is_named(tmp_path: Path) -> None:
    result = judged(tmp_path, "batch")
    assert (result.verdict, result.cause) == ("different", "batchnorm-statistics")


def test_its_loss_is_the_sum_over_samples() -> None:
    workload, batch = load("resnet", {"width": 8, "norm": "group"}), images(4, 1, 8, 8)
    model = workload.build_model(batch)
    each = [workload.loss(model, {name: tensor[i : i + 1] for name, tensor in batch.items()}) for i in range(4)]
    torch.testing.assert_close(workload.loss(model, batch), torch.stack(each).sum())
