from pathlib import Path

import torch

from tests.support.runs import Reference, configuration, prepared, train, trainer_of


def test_channels_last_is_the_same_training_of_a_resnet(tmp_path: Path) -> None:
    small = {"width": 8, "norm": "group"}
    reference = Reference(tmp_path, prepared(tmp_path, limit=40), workload="resnet", options=small, steps=1, window=1)
    candidate = reference.candidate("nhwc", configuration(memory_format="channels_last"))
    trainer = trainer_of(candidate)
    convolutions = [p for p in trainer.plain.parameters() if p.dim() == 4]
    assert convolutions and all(p.is_contiguous(memory_format=torch.channels_last) for p in convolutions)
    seen: list[bool] = []

    def note(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))

    layer = next(m for m in trainer.plain.modules() if m.__class__.__name__ == "BasicBlock")
    layer.register_forward_pre_hook(note)
    trainer.step(0, next(trainer.batches(0, 1, candidate.configuration.loader)))
    assert seen == [True]
    verdict = reference.judge(train(candidate))
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.reason
