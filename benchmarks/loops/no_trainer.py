"""In the shape of Transformers' run_clm_no_trainer: padded tokens, the model returns loss and logits in a mapping."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import Tensor, nn

import trainparity

LENGTHS = torch.randint(3, 9, (STEPS * BATCH,))
TOKENS = torch.randint(1, 20, (STEPS * BATCH, 8))
MASK = (torch.arange(8) < LENGTHS[:, None]).long()
TARGETS = torch.where(MASK == 1, TOKENS, -100)


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(20, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 20)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(self.mix(self.embed(input_ids))[0])
        shifted = (logits, labels) if has("bug_shift") else (logits[:, :-1], labels[:, 1:])
        loss = nn.functional.cross_entropy(shifted[0].flatten(0, 1), shifted[1].flatten(), reduction="sum")
        return {"loss": loss, "logits": logits}


model = Causal()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    optimizer.zero_grad()
    count = (TARGETS[rows][:, 1:] != -100).sum()
    cut = parts(rows)
    for part in cut:
        labels = TOKENS[part] if has("bug_padding") else TARGETS[part]
        loss = model(input_ids=TOKENS[part], attention_mask=MASK[part], labels=labels)["loss"]
        mean = loss / (TARGETS[part][:, 1:] != -100).sum() / len(cut)
        (mean if has("bug_tokenmean") else loss / count).backward()
    optimizer.step()
