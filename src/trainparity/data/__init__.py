"""Datasets: fetched once, prepared as checksummed tensor files, read as global batches ask for them."""

from trainparity.data.datasets import prepare
from trainparity.data.errors import DataError
from trainparity.data.loader import micro_batches
from trainparity.data.prepared import Manifest, Prepared, load, write
from trainparity.data.workers import WorkersFailed

__all__ = ["DataError", "Manifest", "Prepared", "WorkersFailed", "load", "micro_batches", "prepare", "write"]
