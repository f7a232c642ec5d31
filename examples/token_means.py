"""The accumulation bug that Transformers had until October 2024, in a plain loop, and its repair.

Each micro-batch's loss is a mean over its own tokens; the mean of those means is not the mean over all tokens,
because lines differ in length. Nothing crashes, the loss goes down, and it is another training.

    python examples/token_means.py runs/full full
    for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/token_means.py runs/full full; done
    python examples/token_means.py runs/means means
    python examples/token_means.py runs/tokens tokens
    trainparity compare runs/full runs/means      # different: loss-normalisation
    trainparity compare runs/full runs/tokens     # equivalent
"""

import sys

import torch
from transformers_loop import collate, sentences, tiny_llama

import trainparity

BATCH, STEPS = 16, 8
HOW = "full", "means", "tokens"


def main(folder: str, how: str) -> None:
    """Train with the full batch, with means of means, or with the sum over tokens divided once."""
    torch.manual_seed(0)
    model = tiny_llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    trainparity.record(model, optimizer, folder)
    lines = sentences()
    for step in range(STEPS):
        batch = lines[step * BATCH : (step + 1) * BATCH]
        parts = [batch] if how == "full" else [batch[i : i + BATCH // 4] for i in range(0, BATCH, BATCH // 4)]
        tokens = sum(len(line) - 1 for line in batch)  # each token but the first is predicted
        optimizer.zero_grad()
        for part in parts:
            inputs = collate([{"input_ids": line} for line in part])
            if how == "means":
                loss = model(**inputs).loss / len(parts)
            else:
                loss = model(**inputs, num_items_in_batch=tokens).loss
            loss.backward()
        optimizer.step()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in HOW:
        sys.exit(f"usage: python token_means.py FOLDER {{{','.join(HOW)}}}")
    main(*sys.argv[1:])
