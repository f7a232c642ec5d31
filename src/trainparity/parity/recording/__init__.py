"""What a run records of each step, by hooks: the same for our training loop and anybody's."""
