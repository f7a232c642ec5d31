"""How words look: colours of the console, symbols of the page."""

from trainparity.records.verdict import SAME_TRAINING

STYLES = {
    "bitwise": "bold green",
    "equivalent": "green",
    "different": "bold red",
    "failed": "bold red",
    "skipped": "dim",
    "consistent": "green",
    "drifted": "bold red",
    "cannot judge": "yellow",
    "confirmed": "green",
    "not confirmed": "bold red",
    "not measurable here": "yellow",
    "no speed-up": "yellow",
    "graph breaks": "yellow",
    "loader failed": "yellow",
    "not compared": "yellow",
    "emulated": "yellow",
    "withheld": "yellow",
}
"""Colour repeats what the word says; green is kept for what was really run and proved."""

SYMBOLS = {
    "bitwise": "=",
    "equivalent": "≈",
    "different": "≠",
    "skipped": "–",
    "failed": "✕",
    "not compared": "?",
    "reference": "•",
    "consistent": "≈",
    "drifted": "≠",
    "cannot judge": "?",
    "confirmed": "✓",
    "not confirmed": "✕",
    "not measurable here": "–",
}
"""Read together with the verdict's word; the colour only repeats them."""


def key(verdict: str, emulated: bool) -> str:
    """Return the key of `STYLES`: an emulation keeps a good verdict from being green."""
    return "emulated" if emulated and verdict in SAME_TRAINING else verdict
