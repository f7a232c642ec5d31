import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trainparity.measure import compilation
from trainparity.measure.flops import count_flops, peak_flops
from trainparity.measure.memory import peaks, reset_peaks
from trainparity.measure.utilisation import UtilisationSampler

CPU = torch.device("cpu")


def test_operations_of_a_layer_are_counted() -> None:
    layer, x = nn.Linear(7, 5, bias=False), torch.randn(3, 7)
    assert count_flops(lambda: layer(x)) == 2 * 3 * 7 * 5
    assert count_flops(lambda: layer(x).sum().backward()) == 2 * (2 * 3 * 7 * 5)  # and the weight's gradient
    assert count_flops(lambda: x + 1) is None


def test_the_measured_peak_is_a_rate() -> None:
    assert 1e8 < peak_flops(CPU, "fp32", seconds=0.05) < 1e16


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can count the peak of resident memory anew")
def test_the_peak_of_host_memory_rises_and_is_reset() -> None:
    reset_peaks(CPU)
    before = peaks(CPU).host_mib
    big = torch.ones(50 << 20, dtype=torch.float32)
    high = peaks(CPU).host_mib
    del big
    reset_peaks(CPU)
    assert high > before + 150
    assert peaks(CPU).host_mib < high - 150


def test_without_a_gpu_there_is_no_utilisation() -> None:
    with UtilisationSampler(CPU) as sampler:
        sampler.start()
    assert sampler.result() is None


@pytest.mark.cuda
def test_a_gpus_utilisation_is_sampled() -> None:
    device = torch.device("cuda")
    with UtilisationSampler(device) as sampler:
        sampler.start()
        peak_flops(device, "fp32", seconds=2)
    result = sampler.result()
    assert result and result.gpu_percent > 0 and result.temperature_c > 0


@pytest.mark.cuda
def test_a_run_shorter_than_an_interval_is_still_sampled() -> None:
    with UtilisationSampler(torch.device("cuda")) as sampler:
        sampler.start()
    assert sampler.result() is not None


@pytest.fixture
def cold() -> Iterator[None]:
    """Compile as the timed phase does: a cached forward would bring its backward along."""
    compilation.prepare()
    with compilation.own_kernels():
        yield
    compilation.reset()


def seconds() -> float:
    value = compilation.read()[0]
    assert value is not None
    return value


def broken(x: Tensor) -> Tensor:
    y = x.sin() * 2
    torch._dynamo.graph_break()
    return (y.cos() + 1).sum()


def whole(x: Tensor) -> Tensor:
    return (x.sin() * 2).cos().sum()


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize(("function", "graphs", "breaks"), [(whole, 1, 0), (broken, 2, 1)])
def test_compilation_is_accounted_for(function: Callable[[Tensor], Tensor], graphs: int, breaks: int) -> None:
    compilation.reset()
    assert compilation.read() == (0.0, 0, 0)
    x = torch.randn(8, requires_grad=True)
    compiled = torch.compile(function)
    started = time.perf_counter()
    loss = compiled(x)
    forward = seconds()
    loss.backward()
    both, elapsed = seconds(), time.perf_counter() - started
    assert 0 < forward < both < elapsed
    assert compilation.read()[1:] == (graphs, breaks)
    assert [place.split(":")[0] for place in compilation.break_places()] == [Path(__file__).name] * breaks
    compiled(x).backward()
    assert seconds() == both


@pytest.mark.usefixtures("cold")
def test_a_backward_compiled_with_its_forward_is_counted_once() -> None:
    def rows(x: Tensor) -> Tensor:  # its backward needs a size that is not known before: compiled at once
        return (x.sin() * x.shape[0]).cos().sum()

    compilation.reset()
    compiled = torch.compile(rows, dynamic=True)
    started = time.perf_counter()
    compiled(torch.randn(8, 4, requires_grad=True))
    forward = seconds()
    # Counted twice, the backward's share would make it more than all the time there was.
    assert 0 < forward < time.perf_counter() - started
    compiled(torch.randn(6, 4, requires_grad=True)).backward()
    assert seconds() == forward and compilation.read()[1:] == (1, 0)


def test_kernels_that_were_compiled_cold_are_found_by_a_deterministic_training() -> None:
    compilation.prepare()
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    with compilation.own_kernels():
        folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])

        def other(x: Tensor) -> Tensor:  # than those above, whose kernels this process has
            return (x.tanh() * 3).exp().sum()

        def compiled() -> set[Path]:
            compilation.reset()
            torch.compile(other)(torch.randn(8, requires_grad=True)).backward()
            return set(folder.rglob("*.so"))

        assert not folder.exists()
        kernels = compiled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            assert kernels and compiled() == kernels
            assert not list(folder.rglob("*.gch"))  # those are for all models, and last
        finally:
            torch.use_deterministic_algorithms(False)
    compilation.reset()
    assert not folder.parent.exists() and os.environ.get("TORCHINDUCTOR_CACHE_DIR") == before


def test_a_cache_that_cannot_be_made_fails_no_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It only saves time; a run that needs the cache itself says what is wrong with it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file/cache"))
    compilation.prepare()


@pytest.mark.parametrize("name", ["compilation_time_metrics", "counters"])
def test_a_torch_without_the_account_gives_no_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compilation.reset()  # before the name goes: this version of torch itself needs it there
    monkeypatch.delattr(f"torch._dynamo.utils.{name}")
    assert compilation.read() == (None, None, None)


def test_a_renamed_phase_gives_no_seconds_instead_of_none_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_FRAME", "a name of another version")
    compilation.reset()
    torch.compile(whole)(torch.randn(8))
    assert compilation.read() == (None, 1, 0)
