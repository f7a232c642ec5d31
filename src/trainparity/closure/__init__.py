"""Which code a program consists of: files and distributions that its imports reach, found without running any of it."""

from trainparity.closure.reach import Closure, closure_of, hashes_now, nothing_known

__all__ = ["Closure", "closure_of", "hashes_now", "nothing_known"]
