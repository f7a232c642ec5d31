"""Datasets: fetched once, prepared as checksummed tensor files, read as global batches ask for them."""
