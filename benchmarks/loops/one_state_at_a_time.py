"""In the shape of REINFORCE with a critic: a policy that is asked for one state at a time, one backward an episode."""

import torch
from shape import BATCH, FOLDER, STEPS, batches, has
from torch import Tensor, nn

import trainparity

STATES, ACTIONS = torch.randn(STEPS * BATCH, 4), torch.randint(0, 2, (STEPS * BATCH,))
REWARDS = torch.rand(STEPS * BATCH)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.actor, self.critic = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.trunk(state))
        return self.actor(hidden).log_softmax(-1), self.critic(hidden)


def returns(rewards: Tensor) -> Tensor:
    """Sum the rewards from each step on, discounted, and bring them to mean 0 and deviation 1."""
    found, total = [], torch.zeros(())
    for reward in rewards.flip(0):
        total = reward + (0.5 if has("bug_discount") else 0.99) * total
        found.append(total)
    summed = torch.stack(found[::-1])
    return summed if has("bug_scale") else (summed - summed.mean()) / summed.std()


model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
trainparity.record(model, optimizer, FOLDER)
for rows in batches():
    seen = [model(state[None] if has("batched") else state) for state in STATES[rows]]
    chosen = torch.stack([log.flatten()[action] for (log, _), action in zip(seen, ACTIONS[rows], strict=True)])
    values = torch.stack([value.flatten()[0] for _, value in seen])
    wanted = returns(REWARDS[rows])
    advantage = wanted - (values if has("bug_through") else values.detach())
    losses = -chosen * advantage + nn.functional.smooth_l1_loss(values, wanted, reduction="none")
    if not has("bug_nozero"):
        optimizer.zero_grad()
    for part in losses.chunk(2 if has("accum") else 1):
        part.sum().backward(retain_graph=True)
    optimizer.step()
