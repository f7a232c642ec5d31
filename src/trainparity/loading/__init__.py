"""What worker processes, pinning and prefetching cost and gain, beside slicing batches in memory."""
