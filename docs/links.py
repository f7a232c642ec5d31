"""A hook of MkDocs: links to files outside of docs/ lead to the repository, as they do when it is browsed."""

import re
from typing import Any


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Rewrite relative links that leave the folder."""
    return re.sub(r"\]\(\.\./([^)]+)\)", rf"]({config['repo_url']}/blob/main/\1)", markdown)
