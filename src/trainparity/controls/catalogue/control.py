"""What a control is."""

from dataclasses import dataclass

from trainparity.controls.loop import Loop

PLAIN = ("mlp", "conv-groupnorm", "transformer")
"""Models whose training does not depend on how the batch is cut."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """A loop, the loop it is compared with, and the verdict it must get."""

    loop: type[Loop]
    cause: str | None = None
    """The cause that must be named; None if the loop is right."""
    models: tuple[str, ...] = PLAIN
    against: type[Loop] = Loop
    num_ranks: int = 1

    @property
    def coarse(self) -> bool:
        """Whether it computes in bf16 or fp16: facts are judged there that the floor would hide."""
        return self.against.coarse

    @property
    def name(self) -> str:
        """The class's name, as words."""
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in self.loop.__name__).lstrip("-")

    @property
    def what(self) -> str:
        """The class's docstring: how it comes about."""
        return (self.loop.__doc__ or "").strip().splitlines()[0]
