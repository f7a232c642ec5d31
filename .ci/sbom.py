"""List what the built wheel and source distribution hold and need, each as CycloneDX 1.6: `make sbom`.

The versions of packages are those of requirements.lock, which the tests ran with; the wheel itself allows later ones.
"""

import hashlib
import re
import sys
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
UPLOT = ROOT / "src/trainparity/report/vendor/uplot/uPlot.iife.min.js"


def main(dist: Path, out: Path) -> None:
    """Write a list for each file in `dist`; one that is not valid CycloneDX ends this with an error."""
    [wheel] = dist.glob("*.whl")
    with ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        facts = HeaderParser().parsestr(archive.read(metadata).decode())
    out.mkdir(exist_ok=True)
    for path in sorted(dist.iterdir()):
        digest = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())
        main_part = library("pypi", facts["Name"], facts["Version"], hashes=[digest])
        needed = [component(one) for one in map(Requirement, facts.get_all("Requires-Dist", [])) if not of_ours(one)]
        parts = {part.bom_ref.value: part for part in [*needed, uplot()]}
        bom = Bom(components=parts.values())
        bom.metadata.component = main_part
        bom.register_dependency(main_part, parts.values())
        written = JsonV1Dot6(bom).output_as_string(indent=1)
        if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(written):
            sys.exit(f"sbom: {problem}")
        (out / f"{path.name}.cdx.json").write_text(written + "\n")


def of_ours(requirement: Requirement) -> bool:
    """Tell whether only work on this repository needs a package."""
    return re.search(r"extra == ['\"](dev|docs|s3)['\"]", str(requirement.marker)) is not None


def library(kind: str, name: str, version: str, **facts: object) -> Component:
    """Return a component that its package URL identifies."""
    url = PackageURL(kind, None, name, version)
    return Component(type=ComponentType.LIBRARY, name=name, version=version, purl=url, bom_ref=url.to_string(), **facts)


def component(requirement: Requirement) -> Component:
    """Return a package that ours requires, or can use, at the version of the lock."""
    optional = requirement.marker is not None and "extra" in str(requirement.marker)
    scope = ComponentScope.OPTIONAL if optional else ComponentScope.REQUIRED
    return library("pypi", requirement.name, locked(requirement.name), scope=scope)


def locked(name: str) -> str:
    """Return a package's version in requirements.lock."""
    found = re.search(rf"(?m)^{re.escape(name)}==([^\s;]+)", (ROOT / "requirements.lock").read_text())
    if not found:
        sys.exit(f"sbom: {name} is not in requirements.lock")
    return found[1]


def uplot() -> Component:
    """Return the script that our pages hold."""
    found = re.search(r"v(\d+\.\d+\.\d+)", UPLOT.read_text(encoding="utf-8")[:400])
    if not found:
        sys.exit(f"sbom: no version in {UPLOT}")
    digest = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(UPLOT.read_bytes()).hexdigest())
    return library("npm", "uplot", found[1], hashes=[digest])


if __name__ == "__main__":
    main(Path("dist"), Path("sbom"))
