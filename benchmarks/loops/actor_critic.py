"""In the shape of a policy-gradient script: actor and critic on one trunk, an advantage that takes no gradient."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has, parts
from torch import Tensor, nn

import trainparity

STATES, ACTIONS = torch.randn(STEPS * BATCH, 6), torch.randint(0, 3, (STEPS * BATCH,))
RETURNS = torch.randn(STEPS * BATCH)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.actor, self.critic = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.trunk(states))
        return self.actor(hidden), self.critic(hidden.detach() if has("bug_detachtrunk") else hidden)[:, 0]


model = Policy()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9 if has("bug_alpha") else 0.99)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    optimizer.zero_grad()
    for part in parts(rows):
        logits, values = model(STATES[part])
        advantage = RETURNS[part] - values
        weight = advantage if has("bug_advantage") else advantage.detach()
        chosen = logits.log_softmax(1).gather(1, ACTIONS[part][:, None])[:, 0]
        loss = -weight * chosen + 0.5 * advantage.square()
        (loss.sum() / BATCH).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0 if has("bug_limit") else 0.5)
    optimizer.step()
