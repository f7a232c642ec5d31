"""Start a run's processes and turn what they leave into the run's outputs."""
