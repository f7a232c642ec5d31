"""A hook of MkDocs: links to files outside of docs/ lead to the repository, as they do when it is browsed."""

import posixpath
import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Rewrite relative links that leave the folder."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def lead(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        return link[0] if target.startswith("docs/") else f"]({config['repo_url']}/blob/main/{target})"

    return re.sub(r"\]\((\.\./[^)]+)\)", lead, markdown)
