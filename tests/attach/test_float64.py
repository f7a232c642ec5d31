import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from trainparity.attach.float64 import Float64, shard_in_float64

COARSER = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", COARSER)
def test_whatever_format_is_asked_for_float64_is_what_comes(dtype: torch.dtype) -> None:
    elsewhere = torch.ones(3, dtype=dtype)
    with Float64():
        made = [
            torch.zeros(3, dtype=dtype),
            torch.from_numpy(np.ones(3, dtype=np.float32)) * 2,
            elsewhere + 1,
            torch.ones(3, dtype=torch.float64).to(dtype),
            torch.ones(3, dtype=torch.float64).type(dtype),
            torch.empty_like(elsewhere),
            torch.stack([elsewhere, elsewhere])[0],
            torch.arange(3).float().half().bfloat16(),
        ]
    assert [tensor.dtype for tensor in made] == [torch.float64] * len(made)


def test_complex_numbers_are_those_of_two_float64() -> None:
    elsewhere = torch.ones(3, dtype=torch.complex64)
    with Float64():
        made = [
            torch.zeros(3, dtype=torch.complex64),
            elsewhere + 1,
            torch.ones(3).to(torch.complex64),
            torch.ones(3).cfloat(),
            torch.fft.fft(torch.ones(3)) @ torch.randn(3, 2, dtype=torch.complex64),
        ]
    assert [tensor.dtype for tensor in made] == [torch.complex128] * len(made)


def test_integers_and_what_is_changed_in_place_stay_what_they_are() -> None:
    ours = torch.zeros(3)
    with Float64():
        assert torch.arange(3).dtype == torch.int64 and (torch.ones(2) > 0).dtype == torch.bool
        ours.add_(torch.ones(3))
        ours[0] = torch.full((), 5.0)
    assert ours.dtype == torch.float32 and ours.tolist() == [5.0, 1.0, 1.0]


def test_a_model_trains_in_float64_whatever_it_is_cast_to() -> None:
    with Float64():
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters())
        loss = model(torch.randn(6, 4, dtype=torch.float32)).half().square().mean()
        loss.backward()
        optimizer.step()
    tensors = [loss, *model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None)]
    assert {tensor.dtype for tensor in tensors} == {torch.float64}
    assert all(state["exp_avg"].dtype == torch.float64 for state in optimizer.state.values())


def test_policies_of_shards_choose_no_format(monkeypatch: pytest.MonkeyPatch) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    for kind in (fsdp.MixedPrecision, fsdp.MixedPrecisionPolicy):
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    told: list[None] = []
    shard_in_float64(fsdp, lambda: told.append(None))
    fsdp.MixedPrecisionPolicy()
    assert not told
    for kind in (fsdp.MixedPrecision, fsdp.MixedPrecisionPolicy):
        policy = kind(torch.bfloat16, reduce_dtype=torch.float32)
        assert [getattr(policy, field.name) for field in fields(policy) if "_dtype" in field.name] != []
        assert all(getattr(policy, field.name) is None for field in fields(policy) if "_dtype" in field.name)
        assert told and kind(cast_forward_inputs=True).cast_forward_inputs


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        (lambda: torch.ones(2).half() + 1, True),
        (lambda: torch.ones(2).to(torch.bfloat16), True),
        (lambda: torch.zeros(2, dtype=torch.float16), True),
        (lambda: nn.Linear(2, 2).bfloat16(), True),
        (lambda: COARSE + 1, True),
        (lambda: torch.ones(2, dtype=torch.float32).float().to(torch.int8), False),
    ],
)
def test_a_format_coarser_than_single_precision_is_told(compute: Callable[[], object], told: bool) -> None:
    times: list[None] = []
    with Float64(lambda: times.append(None)):
        compute()
    assert bool(times) == told


COARSE = torch.ones(2, dtype=torch.bfloat16)


READS = """
import copy, io, pickle, sys
from array import array
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainparity.attach.float64 import compute_in_float64

written, folder = torch.randn(32, 5, generator=torch.Generator().manual_seed(5)), sys.argv[1]
raw, pickled = written.numpy().tobytes(), pickle.dumps({"x": written})
written.numpy().tofile(f"{folder}/raw")
torch.save({"x": written}, f"{folder}/zip")
torch.save({"x": written}, f"{folder}/old", _use_new_zipfile_serialization=False)
layer = nn.Linear(5, 32, bias=False)
layer.weight.data.copy_(written)
torch.save(layer, f"{folder}/layer")
torch.save(layer, f"{folder}/old layer", _use_new_zipfile_serialization=False)
save_file({"x": written}, f"{folder}/safe")
compute_in_float64()
halves = torch.from_numpy(written.numpy() / 2)
halves.view(-1).mul_(2)
read = {
    "written in place": halves,
    "old layer": torch.load(f"{folder}/old layer", weights_only=False).weight,
    "array": torch.asarray(array("f", raw), dtype=torch.float32),
    "zip": torch.load(f"{folder}/zip")["x"],
    "mapped": torch.load(f"{folder}/zip", mmap=True)["x"],
    "old": torch.load(f"{folder}/old", weights_only=False)["x"] * 1,
    "layer": torch.load(f"{folder}/layer", weights_only=False).weight,
    "pickle": pickle.loads(pickled)["x"],
    "copy": copy.deepcopy(torch.load(f"{folder}/zip"))["x"],
    "safe": load_file(f"{folder}/safe")["x"],
    "buffer": torch.frombuffer(bytearray(raw), dtype=torch.float32) * 1,
    "bytes": torch.asarray(bytearray(raw), dtype=torch.float32),
    "view": torch.frombuffer(bytearray(raw), dtype=torch.int32).view(torch.float32),
    "file": torch.from_file(f"{folder}/raw", size=160, dtype=torch.float32),
    "file of no format": torch.from_file(f"{folder}/raw", size=160),
    "numbers": torch.asarray(written.tolist(), dtype=torch.float32),
    "workers": torch.cat([batch for batch, in DataLoader(TensorDataset(written), 16, num_workers=1)]),
}
for name, tensor in read.items():
    same = tensor.dtype == torch.float64 and torch.equal(tensor.reshape(32, 5), written.double())
    print(f"{name}: {'read' if same else tensor.dtype}")
"""


def test_what_is_read_of_bytes_has_the_numbers_that_were_written(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", READS, tmp_path], capture_output=True, text=True, timeout=120)
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert len(found) == 17 and set(found.values()) == {"read"}, (found, done.stderr)
