import pytest
import torch
from torch import Tensor, nn

from trainparity import workloads
from trainparity.workloads.noise_schedule import DIFFUSION_STEPS, kept_variance
from trainparity.workloads.sampling import sample


class GaussianOracle(nn.Module):
    """The best denoiser of images whose pixels are independent and normal: its noise is known in closed form."""

    def __init__(self, mean: Tensor, deviation: float) -> None:
        super().__init__()
        self.mean, self.variance = mean, deviation**2

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        kept = kept_variance().float()[time][:, None, None, None]
        return (1 - kept).sqrt() * (x - kept.sqrt() * self.mean) / (kept * self.variance + 1 - kept)


def untrained() -> nn.Module:
    torch.manual_seed(0)
    return workloads.load("ddpm", {}).build_model({"images": torch.zeros(1, 1, 8, 8)})


@pytest.mark.parametrize("steps", [DIFFUSION_STEPS, 50, 1])
def test_who_knows_one_image_only_draws_that_image(steps: int) -> None:
    image = torch.randint(256, (3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    drawn = sample(GaussianOracle(image / 127.5 - 1, 0), 5, (3, 8, 8), steps=steps)
    assert torch.equal(drawn, image.expand(5, -1, -1, -1))


@pytest.mark.parametrize("steps", [DIFFUSION_STEPS, 200])
def test_who_knows_a_distribution_draws_from_it(steps: int) -> None:
    oracle = GaussianOracle(torch.tensor(0.2), 0.15)
    drawn = sample(oracle, 256, (1, 8, 8), steps=steps) / 127.5 - 1
    # 16,384 pixels: the standard errors are 0.0012 and 0.0008.
    assert abs(float(drawn.mean()) - 0.2) < 0.006
    assert abs(float(drawn.std()) - 0.15) < 0.006
    assert abs(torch.corrcoef(drawn.flatten(1).T).fill_diagonal_(0)).max() < 0.35


def test_all_steps_are_the_papers_algorithm() -> None:
    """Algorithm 2 in its own words, from the same noise."""
    torch.manual_seed(1)
    oracle = GaussianOracle(torch.tensor(-0.1), 0.1)
    generator = torch.Generator().manual_seed(7)
    kept = kept_variance()
    alphas = kept / torch.cat([torch.ones(1, dtype=kept.dtype), kept[:-1]])
    x = torch.randn(2, 1, 4, 4, generator=generator)
    for time in reversed(range(DIFFUSION_STEPS)):
        alpha, bar, before = (float(v) for v in (alphas[time], kept[time], kept[time - 1] if time else 1.0))
        predicted = oracle(x, torch.full((2,), time))
        mean = (x - (1 - alpha) / (1 - bar) ** 0.5 * predicted) / alpha**0.5
        deviation = ((1 - before) / (1 - bar) * (1 - alpha)) ** 0.5
        x = mean + deviation * torch.randn(2, 1, 4, 4, generator=generator)
    expected = x.add(1).mul(127.5)
    drawn = sample(oracle, 2, (1, 4, 4), seed=7)
    torch.testing.assert_close(drawn.float(), expected, atol=0.6, rtol=0)


def test_samples_are_images_that_only_the_seed_decides() -> None:
    model = untrained()
    first, again, other = (sample(model, 3, (1, 8, 8), steps=5, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (3, 1, 8, 8) and first.dtype == torch.uint8
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("steps", [0, DIFFUSION_STEPS + 1])
def test_impossible_steps_are_refused(steps: int) -> None:
    with pytest.raises(ValueError, match="allowed: 1 to 1000"):
        sample(untrained(), 1, (1, 8, 8), steps=steps)
