"""One traced step of two runs: what both recorded of it, where their passes part, and what is off."""
