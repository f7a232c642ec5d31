"""Which code a program consists of: files and distributions that its imports reach, found without running any of it."""

from trainparity.closure.reach import Closure, Part, closure_of, hash_of, nothing_known

__all__ = ["Closure", "Part", "closure_of", "hash_of", "nothing_known"]
