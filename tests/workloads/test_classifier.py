from pathlib import Path

import pytest
import torch
import torchvision
from torch import Tensor, nn

from tests.support.images import accuracy_after, digits, images, num_parameters
from tests.support.runs import Reference, configuration, prepared, train
from trainparity.workloads import load

MODELS = ["swin-t", "swin-b", "convnext-l"]
SMOKE = {"scale": "smoke", "image_size": 32}


@pytest.mark.parametrize(
    ("model", "torchvisions", "published"),
    [
        ("swin-t", "swin_t", 28_288_354),
        ("swin-b", "swin_b", 87_768_224),
        ("convnext-l", "convnext_large", 197_767_336),
    ],
)
def test_published_sizes_are_torchvisions(model: str, torchvisions: str, published: int) -> None:
    workload = load("classifier", {"model": model, "scale": "article", "classes": 1000})
    with torch.device("meta"):
        ours = workload.build_model(images(1, 3, 224, 224))
        theirs = torchvision.models.get_model(torchvisions)
    assert num_parameters(ours) == published
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}


@pytest.mark.parametrize("model", MODELS)
def test_each_scale_is_smaller_than_the_next(model: str) -> None:
    with torch.device("meta"):
        sizes = [
            num_parameters(load("classifier", {"model": model, "scale": scale}).build_model(images(1, 3, 64, 64)))
            for scale in ("smoke", "laptop", "article")
        ]
    assert 2 * sizes[0] < sizes[1] and 2 * sizes[1] < sizes[2]


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_is_trained_and_nothing_is_drawn_inside(model: str, scale: str) -> None:
    workload, batch = load("classifier", {"model": model, "scale": scale, "image_size": 32}), images(2, 1, 8, 8)
    built = workload.build_model(batch).train()
    before = torch.get_rng_state()
    workload.loss(built, batch).backward()
    assert torch.equal(torch.get_rng_state(), before)
    assert [name for name, p in built.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []


@pytest.mark.parametrize("model", MODELS)
def test_its_blocks_hold_most_weights(model: str) -> None:
    workload = load("classifier", {"model": model, "scale": "article"})
    with torch.device("meta"):
        built = workload.build_model(images(1, 3, 224, 224))
    blocks = workload.blocks(built)
    assert len(blocks) == {"swin-t": 12, "swin-b": 24, "convnext-l": 36}[model]
    assert sum(num_parameters(block) for block in blocks) > 0.9 * num_parameters(built)


def test_stochastic_depth_is_drawn_inside_the_model() -> None:
    workload, batch = load("classifier", {**SMOKE, "stochastic_depth": 0.5}), images(2, 1, 8, 8)
    built = workload.build_model(batch).train()
    before = torch.get_rng_state()
    workload.loss(built, batch)
    assert not torch.equal(torch.get_rng_state(), before)


def test_grey_images_are_shown_to_all_colours_and_resized() -> None:
    seen: list[Tensor] = []
    workload, batch = load("classifier", {**SMOKE, "image_size": 64}), images(2, 1, 32, 32)
    built = workload.build_model(batch)
    built.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    scores = workload.predict(built, batch)
    assert scores is not None and scores.shape == (2, 10)
    [shown] = seen
    assert shown.shape == (2, 3, 64, 64) and shown.min() >= -1 and shown.max() <= 1
    assert torch.equal(shown[:, 0], shown[:, 2])
    # Half-way between a pixel and the next, bilinear interpolation takes three quarters of the nearer one.
    first, second = batch["images"][:, 0, 0, :2].float().unbind(1)
    torch.testing.assert_close(shown[:, 0, 0, 1], (0.75 * first + 0.25 * second) / 127.5 - 1)


def test_images_that_are_too_small_are_named() -> None:
    with pytest.raises(ValueError, match=r"images of 31 pixels .* set workload.options.image_size to 32"):
        load("classifier", {"scale": "article"}).build_model(images(1, 1, 31, 31))
    with torch.device("meta"):
        load("classifier", {"scale": "article"}).build_model(images(1, 1, 32, 32))


@pytest.mark.parametrize("model", MODELS)
def test_the_smallest_images_pass_through(model: str) -> None:
    workload = load("classifier", {"model": model, "scale": "laptop"})
    batch = images(2, 1, 8, 8)
    assert workload.loss(workload.build_model(batch), batch).isfinite()
    with pytest.raises(ValueError, match="images of 7 pixels"):
        workload.build_model(images(1, 1, 7, 7))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["swin-t", "convnext-l"])
def test_it_learns_the_digits(model: str, tmp_path: Path) -> None:
    workload = load("classifier", {**SMOKE, "model": model})
    assert accuracy_after(workload, digits(tmp_path), steps=120) > 0.3  # chance is 0.1


@pytest.mark.parametrize("model", ["swin-t", "convnext-l"])
def test_every_cut_of_the_batch_is_the_same_training(model: str, tmp_path: Path) -> None:
    options = {**SMOKE, "model": model}
    reference = Reference(tmp_path, prepared(tmp_path), workload="classifier", options=options, steps=3)
    result = reference.judge(train(reference.candidate("cut", configuration(accumulation_steps=2))))
    assert result.verdict == "equivalent"


def test_its_loss_is_the_sum_over_samples() -> None:
    workload, batch = load("classifier", SMOKE), images(4, 3, 32, 32)
    built: nn.Module = workload.build_model(batch)
    each = [workload.loss(built, {name: tensor[i : i + 1] for name, tensor in batch.items()}) for i in range(4)]
    torch.testing.assert_close(workload.loss(built, batch), torch.stack(each).sum())
