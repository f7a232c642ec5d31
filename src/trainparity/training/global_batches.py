"""`trainparity.GlobalBatchSampler`: the same global batches in anybody's loop, however they are cut."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler as TorchSampler

from trainparity.integers import integer
from trainparity.training.sampler import Sampler, strided


class GlobalBatchSampler(TorchSampler[list[int]]):
    """A batch sampler for `DataLoader`: one order of global batches, on any number of ranks and micro-batches.

    A global batch holds the samples of one optimizer step. It depends on `seed`, epoch and step alone. Rank r of W
    takes its samples r, r + W, ...; micro-batch i of k takes of those i, i + k, ... So plain, distributed and
    accumulating runs see the same samples at each step, and `trainparity compare` can compare them:

        batches = trainparity.GlobalBatchSampler(len(data), 64, rank=rank, world_size=world_size, accumulation_steps=2)
        loader = DataLoader(data, batch_sampler=batches, num_workers=4, persistent_workers=True)
        for epoch in range(epochs):
            batches.set_epoch(epoch)
            for number, (images, labels) in enumerate(loader):  # 2 micro-batches are one optimizer step
                (criterion(model(images), labels) / 2).backward()
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()

    Equal micro-batches, as here, have equal weight, so the mean of their means is the mean over the global batch. Where
    `global_batch_size` can't be divided by world_size x accumulation_steps, or a last batch is shorter, sum the losses
    instead and divide by `global_count(number)` (under DDP, which averages over ranks, multiply by the world size).
    """

    def __init__(
        self,
        num_samples: int,
        global_batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        accumulation_steps: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        """Cut batches of `num_samples` samples.

        Args:
            num_samples: The dataset's length.
            global_batch_size: Samples of one optimizer step, over all ranks and micro-batches.
            rank: This process's.
            world_size: The number of ranks.
            accumulation_steps: Micro-batches of each optimizer step, on each rank.
            shuffle: Visit the samples in a new order each epoch.
            seed: Of that order; the same on all ranks.
            drop_last: Leave out an epoch's last global batch where it is shorter.

        Raises:
            ValueError: an argument is out of range, or some micro-batch would have no sample.
            TypeError: a number is no integer.
        """
        for name, value, least in (
            ("num_samples", num_samples, 1),
            ("global_batch_size", global_batch_size, 1),
            ("rank", rank, 0),
            ("world_size", world_size, 1),
            ("accumulation_steps", accumulation_steps, 1),
            ("seed", seed, 0),
        ):
            integer(name, value, least)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}; it must be from 0 to {world_size - 1}")
        self._sampler = Sampler(
            num_samples=num_samples, global_batch_size=global_batch_size, seed=seed, shuffle=shuffle
        )
        self._rank, self._world_size, self._parts = rank, world_size, accumulation_steps
        self._last = num_samples % global_batch_size
        self.steps_per_epoch = num_samples // global_batch_size + (self._last > 0 and not drop_last)
        """Optimizer steps of an epoch."""
        if not self.steps_per_epoch:
            raise ValueError(
                f"drop_last leaves none of {num_samples} samples: the global batch has {global_batch_size}"
            )
        least = world_size * accumulation_steps
        need = f"{world_size} ranks x {accumulation_steps} micro-batches need at least {least}"
        if global_batch_size < least:
            raise ValueError(f"the global batch has {global_batch_size} samples; {need}")
        if 0 < self._last < least and not drop_last:
            raise ValueError(f"the last global batch has {self._last} samples; {need}, or drop_last=True")
        self.epoch = 0
        self._start = 0  # the step at which the next iteration begins
        self._next = 0  # the step of the next micro-batch

    def __len__(self) -> int:
        """Return the micro-batches of a whole epoch on this rank."""
        return self.steps_per_epoch * self._parts

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's micro-batches of the epoch, or what is left of it after `load_state_dict`."""
        start, self._start = self._start, 0
        for step in range(start, self.steps_per_epoch):
            shard = strided(self.global_batch(step), self._rank, self._world_size)
            for part in range(self._parts):
                self._next = step + (part == self._parts - 1)
                yield strided(shard, part, self._parts)

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for this epoch; call it before the loader is iterated. A resumed epoch goes on where it stood."""
        integer("epoch", epoch, 0)
        if epoch != self.epoch:
            self.epoch, self._start, self._next = epoch, 0, 0

    def global_batch(self, step: int) -> list[int]:
        """Return all samples of one optimizer step of this epoch, counted from 0."""
        samples: list[int] = self._sampler.global_batch(self.epoch * self._sampler.steps_per_epoch + step).tolist()
        return samples

    def global_count(self, number: int) -> int:
        """Return how many samples the global batch has that micro-batch `number` of an epoch belongs to."""
        short = self._last and number // self._parts == self._sampler.steps_per_epoch - 1
        return self._last if short else self._sampler.global_batch_size

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Return the position, for `load_state_dict`.

        Args:
            step: Optimizer steps made in this epoch. A loader with workers reads ahead of the loop, so give it;
                None counts what the loader has taken, which without workers is the same.
        """
        whole = self._sampler
        return {
            "epoch": self.epoch,
            "step": self._next if step is None else step,
            "num_samples": whole.num_samples,
            "global_batch_size": whole.global_batch_size,
            "seed": whole.seed,
            "shuffle": whole.shuffle,
            "steps_per_epoch": self.steps_per_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a position: the next iteration begins there. Ranks and micro-batches may be other ones.

        Raises:
            ValueError: the state is of other global batches.
        """
        mine = self.state_dict()
        if odd := [key for key in mine if key not in ("epoch", "step") and state.get(key) != mine[key]]:
            text = ", ".join(f"{key} {state.get(key)} (here {mine[key]})" for key in odd)
            raise ValueError(f"the state is of other global batches: {text}")
        for name in ("epoch", "step"):
            integer(name, state[name], 0)
        epoch, step = int(state["epoch"]), int(state["step"])
        if step >= self.steps_per_epoch:  # the epoch had ended
            epoch, step = epoch + 1, 0
        self.epoch, self._start, self._next = epoch, step, step
