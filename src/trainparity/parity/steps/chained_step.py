"""One traced step of two runs with what its passes show, which is compared once."""

from functools import cached_property

from trainparity.parity.steps.chain import Chain
from trainparity.parity.steps.step_pair import StepPair


class ChainedStep(StepPair):
    """A step of two runs and what its forward and backward passes show, module by module."""

    @cached_property
    def chain(self) -> Chain:
        """Where on their way the runs part."""
        return Chain.of(self)
