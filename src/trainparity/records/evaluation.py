"""`<run>/state/evaluation.json`: what a trained model scores on held-out samples."""

from trainparity.records.base import Record


class Evaluation(Record):
    """What a trained model scores on samples that were held out of its training."""

    samples: int
    accuracy: float
    precision: float
    """Mean over classes, as is recall; a class that is never predicted counts as 0."""
    recall: float
