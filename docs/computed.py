"""Write what the pages say of causes and candidates from the registries, and of studies and costs from their results.

`make docs` does, and a test fails where they differ.
"""

import json
import re
from pathlib import Path
from typing import get_args

from trainparity.checking.candidates import CANDIDATES
from trainparity.parity.causes import IDENTIFIERS, RULES
from trainparity.records.claims import ClaimReport
from trainparity.records.verdict import Link

FOLDER = Path(__file__).parent
README = FOLDER.parent / "README.md"
RESULTS = FOLDER.parent / "benchmarks/results"


def pages() -> dict[Path, str]:
    """Return the text that each page should have, by its file; prose and loops stay as they are."""
    found = {FOLDER / "verdict.md": _verdict, FOLDER / "causes/index.md": _index, FOLDER / "studies.md": _studies}
    found[FOLDER / "configurations/index.md"] = _candidates
    found |= {FOLDER / f"causes/{cause}.md": _page for cause in IDENTIFIERS}
    found[README] = _readme
    if missing := [str(path) for path in found if not path.exists()]:
        raise SystemExit(f"{', '.join(missing)}: no such page: write it first (CONTRIBUTING.md, a new cause)")
    return {path: write(path.read_text(encoding="utf-8"), path.stem) for path, write in found.items()}


def _page(text: str, cause: str) -> str:
    rules = [rule for rule in RULES if rule.cause == cause]
    proofs = "".join(f"- {rule.link}: {rule.proof}\n" for rule in rules)
    text = _replaced(r"(?<=^## Evidence\n\n)(?s:.*?)(?=^## )", f"{_ANY_OF_THESE}\n\n{proofs}\n", text)
    advice = "".join(f"- {advice}\n" for advice in dict.fromkeys(rule.advice for rule in rules))
    return _replaced(r"(?<=^## Repair\n\n)(- .*\n)*", advice, text)


_ANY_OF_THESE = "Any of these proves it; in front of each stands its link of the chain:"


def _index(text: str, _: str) -> str:
    rows = ""
    for link in get_args(Link):
        causes = dict.fromkeys(rule.cause for rule in RULES if rule.link == link)
        rows += f"| {link} | {', '.join(f'[`{cause}`]({cause}.md)' for cause in causes)} |\n" if causes else ""
    return _replaced(r"(?<=^\| link \| causes \|\n\|---\|---\|\n)(\| [a-z]+ \|.*\n)*", rows, text)


def _candidates(text: str, _: str) -> str:
    rows = ""
    for word, (settings, counted) in CANDIDATES.items():
        stands_for = ", ".join(f"{key}: {value}" for key, value in settings.items()) or "strategy: single"
        rows += f"| `{word}` | `{stands_for}` | {f'`{counted}`' if counted else '–'} |\n"
    return _replaced(
        r"(?<=^\| word \| stands for \| a number after a colon \|\n\|---\|---\|---\|\n)(\| .*\n)*", rows, text
    )


def _verdict(text: str, _: str) -> str:
    order = "".join(f"{place}. [`{cause}`](causes/{cause}.md)\n" for place, cause in enumerate(IDENTIFIERS, 1))
    return _replaced(r"(?<=they are tried:\n\n)(\d+\. .*\n)*", order, text)


def _studies(text: str, _: str) -> str:
    """Fill in what was measured of each claim that the table selects."""
    return re.sub(r"^\| `([\w-]+)` ([\w-]+): .*\n", lambda row: _claim(row[1], row[2]), text, flags=re.MULTILINE)


def _claim(study: str, name: str) -> str:
    results = ClaimReport.read(RESULTS / f"studies/{study}-laptop.json").results
    claim = next(result for result in results if result.name == name)
    measured = str(claim.measured)
    if len(measured) > _LONGEST:
        measured = measured.partition("; ")[0]
    return f"| `{study}` {name}: {claim.statement} | {claim.published} | {measured} | {claim.verdict} |\n"


_LONGEST = 200
"""Characters of a figure that the table shows; of a longer one it is what stands before its details."""


def _readme(text: str, _: str) -> str:
    """Fill in what the Recorder costs."""
    targets = json.loads((RESULTS / "recorder-amd-epyc.json").read_text(encoding="utf-8"))["targets"]
    found = {target["name"].removeprefix("Recorder, "): target["found"] for target in targets}
    of_step = ", ".join(f"{_percent(found[name])} of {whose} step" for name, whose in _MODELS.items())
    return _replaced(r"(?<=^At its default interval the Recorder costs ).*(?=,$)", of_step, text)


_MODELS = {
    "transformer": "a small transformer's",
    "resnet18": "a ResNet-18's",
    "mobilenet_v3_small": "a MobileNet's small",
}
"""Whose step each model's is, by its name in the results."""


def _percent(found: list[float]) -> str:
    middle, low, high = (f"{100 * part:.1f}" for part in found)
    return f"{middle} % ({low} to {high})"


def _replaced(pattern: str, by: str, text: str) -> str:
    """Replace the one place that a pattern finds."""
    changed, count = re.subn(pattern, lambda _: by, text, count=1, flags=re.MULTILINE)
    assert count == 1, pattern
    return changed


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
