"""Settings of `ddpm`."""

from typing import Literal

from trainparity.validation import Section


class DdpmOptions(Section):
    """Settings of `ddpm`."""

    scale: Literal["tiny", "article"] = "tiny"
    """`tiny` trains on a laptop's CPU; `article` is the published size."""
