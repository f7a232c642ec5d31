"""The pages' templates, style and script; a package, so that who depends on the page depends on all of them."""

from pathlib import Path

FOLDER = Path(__file__).parent
