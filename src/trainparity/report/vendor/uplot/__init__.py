"""uPlot 1.6.32 (https://github.com/leeoniya/uPlot, MIT licence, see LICENSE), as its npm package has it."""

from pathlib import Path

SCRIPT = Path(__file__).with_name("uPlot.iife.min.js")
STYLE = Path(__file__).with_name("uPlot.min.css")
