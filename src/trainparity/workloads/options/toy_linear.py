"""Settings of `toy-linear`."""

from trainparity.validation import Section


class ToyLinearOptions(Section):
    """Settings of `toy-linear`."""

    samples_per_device: int = 4
    """The article sums its loss over this many samples on each device and averages over devices."""
