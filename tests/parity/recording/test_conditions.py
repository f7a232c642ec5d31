"""What a run computed with."""

import pytest
import torch
from torch import nn

from tests.support.synthetic import judge
from trainparity.parity.recording.conditions import conditions, differing


def test_flags_threads_and_variables_that_change_rounding_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = conditions(nn.Linear(1, 1))
    assert before["torch"] == torch.__version__ and before["device"] == "cpu"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another in every run")
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")  # torchrun does
    monkeypatch.setenv("HF_TOKEN", "a secret")
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(threads + 1)
    try:
        after = conditions(nn.Linear(1, 1))
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)
    assert differing(before, after, ("a", "b")) == [
        f"threads: {threads} in a, {threads + 1} in b",
        f"float32 matmul precision: {precision} in a, medium in b",
        "$CUBLAS_WORKSPACE_CONFIG: - in a, :4096:8 in b",
    ]


def test_a_verdict_shows_what_differs_and_is_not_decided_by_it() -> None:
    found = judge({"layout": {"environment": {"torch": "2.14"}}}, {"layout": {"environment": {"torch": "2.15"}}})
    assert found.verdict == "bitwise" and found.environment == ["torch: 2.14 in left, 2.15 in right"]
