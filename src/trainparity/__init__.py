"""Is it still the same training, and what did it gain?"""
