"""List what an image holds in /etc/trainparity, as CycloneDX, and the hash of that: its name in a run's fingerprint."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

FOLDER = Path("/etc/trainparity")


def packages() -> Iterator[PackageURL]:
    """Yield Python, the packages of $VIRTUAL_ENV, and Debian's."""
    yield PackageURL("generic", None, "python", platform.python_version())
    [site_packages] = Path(os.environ["VIRTUAL_ENV"]).glob("lib/python3*/site-packages")
    for found in distributions(path=[str(site_packages)]):
        yield PackageURL("pypi", None, found.name, found.version)
    form = "${Package} ${Version} ${Architecture}\n"
    query = ["dpkg-query", "--show", f"--showformat={form}"]
    for line in subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines():
        name, version, architecture = line.split()
        yield PackageURL("deb", "debian", name, version, {"arch": architecture})


def main() -> None:
    """Write both files; a list that is not valid CycloneDX 1.6 fails the build."""
    found = {str(url): url for url in packages()}
    bom = Bom(
        components=[
            Component(type=ComponentType.LIBRARY, name=url.name, version=url.version, purl=url, bom_ref=text)
            for text, url in found.items()
        ]
    )
    written = JsonV1Dot6(bom).output_as_string(indent=1)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(written):
        sys.exit(f"describe: {problem}")
    (FOLDER / "sbom.cdx.json").write_text(written)
    (FOLDER / "image").write_text(hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:16] + "\n")


if __name__ == "__main__":
    main()
