"""Write what the pages say of causes from the registry: `make docs` does; a test fails where they differ."""

import re
from pathlib import Path
from typing import get_args

from trainparity.parity.causes import IDENTIFIERS, RULES, UNKNOWN, paragraphs
from trainparity.records.verdict import Link

FOLDER = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Return the text that each page should have, by its file; prose and loops stay as they are."""
    found = {FOLDER / "verdict.md": _verdict, FOLDER / "causes/index.md": _index}
    found |= {FOLDER / f"causes/{cause}.md": _page for cause in IDENTIFIERS}
    return {path: write(path.read_text(encoding="utf-8"), path.stem) for path, write in found.items()}


def _page(text: str, cause: str) -> str:
    rules = [rule for rule in RULES if rule.cause == cause]
    links = ", ".join(dict.fromkeys(str(rule.link) for rule in rules))
    evidence = f"What proves it (link of the chain: {links}): {paragraphs()[cause]}.\n"
    text = _replaced(r"(?<=^## Evidence\n\n)(What proves it .*)?\n", evidence, text)
    advice = "".join(f"- {advice}\n" for advice in dict.fromkeys(rule.advice for rule in rules))
    return _replaced(r"(?<=^## Repair\n\n)(- .*\n)*", advice, text)


def _index(text: str, _: str) -> str:
    rows = ""
    for link in get_args(Link):
        causes = dict.fromkeys(rule.cause for rule in RULES if rule.link == link)
        rows += f"| {link} | {', '.join(f'[`{cause}`]({cause}.md)' for cause in causes)} |\n" if causes else ""
    return _replaced(r"(?<=^\| link \| causes \|\n\|---\|---\|\n)(\| [a-z]+ \|.*\n)*", rows, text)


def _verdict(text: str, _: str) -> str:
    proofs = {**paragraphs(), UNKNOWN: "none of these"}
    rows = "".join(f"| `{cause}` | {proof} |\n" for cause, proof in proofs.items())
    return _replaced(r"(?<=^\| cause \| what proves it \|\n\|---\|---\|\n)(\| `.*\n)*", rows, text)


def _replaced(pattern: str, by: str, text: str) -> str:
    """Replace the one place that a pattern finds."""
    changed, count = re.subn(pattern, lambda _: by, text, count=1, flags=re.MULTILINE)
    assert count == 1, pattern
    return changed


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
