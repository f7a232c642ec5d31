"""The plan of a stage: all that it depends on besides the outputs of other stages."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from trainparity.hashing import MISSING
from trainparity.records.base import Record


class Plan(Record):
    """What a stage depends on besides the outputs of other stages."""

    settings: dict[str, Any]
    """What it reads of params.yaml, at the scale in force and with all defaults filled in."""
    files: dict[str, str]
    """Hash of each source file that it can come to run, and of what it reads the dataset from."""
    distributions: dict[str, str]
    """Version of each installed package that those files import."""
    also_read: dict[str, str] = Field(default_factory=dict)
    """Hash of each other file that it is known to read (`reading.py`)."""
    environment: str | None = None
    """Fingerprint of machine and image, of a stage that trains."""

    @property
    def digest(self) -> str:
        """16 digits over all but `also_read`: what is known before the stage ever ran."""
        known = self.model_copy(update={"also_read": {}})
        return hashlib.sha256(known.as_json().encode()).hexdigest()[:16]

    def completed(self, read: Mapping[str, str]) -> Self:
        """Return this plan with the hashes of files that were read, of those that it does not hold as its code."""
        more = {name: digest for name, digest in read.items() if not self._holds(name, digest)}
        return self.model_copy(update={"also_read": dict(sorted((self.also_read | more).items()))})

    def _holds(self, path: str, digest: str) -> bool:
        """Tell whether `files` hold one that was read: they are named by their modules, not by where they lie."""
        name, folder = Path(path).name, Path(path).parent.name
        if digest == MISSING:  # an import that finds nothing
            return self.distributions.get(folder if name == "__init__.py" else Path(path).stem) == MISSING
        return path in self.files or any(Path(own).name == name and self.files[own] == digest for own in self.files)
