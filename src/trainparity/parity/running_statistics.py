"""Which buffers are BatchNorm's running statistics: no loss of a training is made with those."""

from trainparity.parity.recording.trace import Layout


def of_batchnorm(layout: Layout, buffer: str) -> bool:
    """Tell whether a buffer, by its name, is one of BatchNorm's, or of a normalisation like it."""
    kind = layout.modules.get(buffer.rpartition(".")[0], "")
    return "BatchNorm" in kind or "InstanceNorm" in kind
