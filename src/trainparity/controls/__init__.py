"""Does the checker work? Training loops that are wrong on purpose, and right ones, with the verdict each must get."""
