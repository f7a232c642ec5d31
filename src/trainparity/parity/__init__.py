"""Is it the same training? Traces, the noise floor and verdicts. Knows tensors, not workloads."""
