"""A Transformers Trainer with the Recorder in it, as a callback: a small language model on real text.

python examples/transformers_loop.py runs/plain
for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/transformers_loop.py runs/plain; done
torchrun --nproc-per-node 2 examples/transformers_loop.py runs/ddp
trainparity compare runs/plain runs/ddp
"""

import os
import sys
import tempfile

import torch
from sklearn.datasets import load_diabetes, load_digits, load_wine
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from trainparity.transformers import RecordCallback


def sentences() -> list[torch.Tensor]:
    """Return eight batches of lines of scikit-learn's data set descriptions as bytes: real text of many lengths.

    Ranks would fill a last batch up that has fewer, and train otherwise.
    """
    text = "\n".join(load().DESCR for load in (load_digits, load_wine, load_diabetes))
    lines = [line.strip().encode() for line in text.splitlines()]
    return [torch.tensor(list(line[:48])) for line in lines if len(line) > 3][:128]


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Pad lines to one length; padding is neither attended to nor learned."""
    lines = [row["input_ids"] for row in rows]
    return {
        "input_ids": pad_sequence(lines, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(line) for line in lines], batch_first=True),
        "labels": pad_sequence(lines, batch_first=True, padding_value=-100),
    }


def tiny_llama() -> LlamaForCausalLM:
    """Make a Llama of bytes, small enough for a CPU."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
        )
    )


def main(folder: str, accumulation_steps: int = 1) -> None:
    """Train ten steps; the global batch is 16 lines on any number of processes."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    set_seed(0)
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output,
            use_cpu=True,
            max_steps=10,
            per_device_train_batch_size=16 // world_size // accumulation_steps,
            gradient_accumulation_steps=accumulation_steps,
            learning_rate=1e-3,
            data_seed=0,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        Trainer(
            model=tiny_llama(),
            args=arguments,
            train_dataset=[{"input_ids": line} for line in sentences()],
            data_collator=collate,
            callbacks=[RecordCallback(folder)],
        ).train()


if __name__ == "__main__":
    main(sys.argv[1], *(int(value) for value in sys.argv[2:]))
