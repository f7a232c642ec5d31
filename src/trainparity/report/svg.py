"""A matplotlib figure as inline SVG that takes its colours and font from the page."""

import io
import re
from collections.abc import Callable

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure

INK = "#010203"
MUTED = "#010204"
GRID = "#010205"
ACCENT = "#010206"
BAND = "#010207"
WARNING = "#010208"

_PAGE_COLOURS = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    ACCENT: "var(--accent)",
    BAND: "var(--band)",
    WARNING: "var(--bad)",
}
"""Colours no plot would use by chance stand for the page's own, which follow its light or dark scheme."""

_XLINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'

STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and selected
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.solid_capstyle": "round",
}


def render(width: float, height: float, label: str, draw: Callable[[Figure], None]) -> Markup:
    """Return what `draw` draws as one `<svg>` element; equal drawings give equal bytes.

    `width` and `height` are in inches. `label` is the text alternative; it must differ between the plots of
    a page.
    """
    text = io.StringIO()
    # Ids are hashed from content, not drawn by chance; the label keeps equal markers of two plots apart.
    with rc_context(STYLE | {"svg.hashsalt": label}):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        # Without metadata there is neither a date nor a block of foreign namespaces.
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = text.getvalue()
    svg = svg[svg.index("<svg ") :]
    # Group names are counted per figure, so they would repeat within the page; nothing refers to them.
    svg = re.sub(r'<g id="[^"]*_\d+"', "<g", svg)
    for stand_in, colour in _PAGE_COLOURS.items():
        svg = svg.replace(stand_in, colour)
    box = f'viewBox="0 0 {72 * width:g} {72 * height:g}"'
    opening = f'<svg {box} role="img" aria-label="{escape(label)}" {_XLINK}'
    return Markup(re.sub(r"^<svg [^>]*", lambda _: opening, svg))
