"""DDP's wrapper, which says by name which parameters it waits for in vain."""

import re
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from trainparity.errors import UserError

_WAITED = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")


class Replicated(DistributedDataParallel):
    """`DistributedDataParallel` with its explanation of unused parameters in one sentence."""

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Run the model.

        Raises:
            UserError: in the step before, parameters took no part in the loss.
        """
        try:
            return super().forward(*inputs, **keywords)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if (found := _WAITED.search(str(error))) is None:
                raise
            trained = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
            names = [trained[int(index)] for index in found[1].split()]
            raise UserError(
                f"{', '.join(names[:_MOST])}{', ...' if len(names) > _MOST else ''} took no part in the loss, and DDP "
                "waits for every gradient: use them, or freeze them by requires_grad_(False) in build_model"
            ) from None


_MOST = 8
"""Names in a sentence."""
