"""Clocks, memory, floating-point operations, compilation and utilisation."""
