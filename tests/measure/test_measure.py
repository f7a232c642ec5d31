import sys
import time

import pytest
import torch
from torch import nn

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


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() * 2
    torch._dynamo.graph_break()
    return (y.cos() + 1).sum()


def whole(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).cos().sum()


@pytest.mark.parametrize(("function", "graphs", "breaks"), [(whole, 1, 0), (broken, 2, 1)])
def test_compilation_is_accounted_for(function: object, graphs: int, breaks: int) -> None:
    compilation.reset()
    assert compilation.read() == (0.0, 0, 0)
    x = torch.randn(8, requires_grad=True)
    compiled = torch.compile(function)  # type: ignore[call-overload]
    started = time.perf_counter()
    compiled(x).backward()
    elapsed = time.perf_counter() - started
    first = compilation.read()
    # Nearly all of the first call is compilation; counted twice, it would be more than all of it.
    assert elapsed / 2 < first[0] < elapsed and first[1:] == (graphs, breaks)
    compiled(x).backward()
    assert compilation.read() == first
