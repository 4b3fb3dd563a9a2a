"""Write a software bill of materials (CycloneDX 1.5, JSON) of the environment this runs in.

    python tools/sbom.py > sbom.json

It is made from the metadata of installed packages: name, version, license, and which package needs
which. The same environment gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, distributions
from typing import Any

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def purl(package: Distribution) -> str:
    """Return the package URL that identifies a package and its version."""
    return f"pkg:pypi/{normal(package.metadata['Name'])}@{package.version}"


def component(package: Distribution) -> dict[str, Any]:
    """Return one package as CycloneDX describes it."""
    about = package.metadata
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl(package),
        "name": about["Name"],
        "version": package.version,
        "purl": purl(package),
    }
    expression, text = about.get("License-Expression"), about.get("License")
    if expression:
        found["licenses"] = [{"expression": expression}]
    elif text and "\n" not in text and len(text) < 100:
        found["licenses"] = [{"license": {"name": text}}]
    if about.get("Summary"):
        found["description"] = about["Summary"]
    return found


def bill_of_materials(packages: list[Distribution], *, own: str = "umpteen") -> dict[str, Any]:
    """Return the document.

    Args:
        packages: Everything that is installed.
        own: The package that the document is about.

    Raises:
        ValueError: If that package is not installed.
    """
    by_name = {normal(package.metadata["Name"]): package for package in packages}
    if own not in by_name:
        raise ValueError(f"{own} is not installed in this environment")
    ordered = [by_name[name] for name in sorted(by_name)]
    dependencies = []
    for package in ordered:
        needed = (NAME.match(line) for line in package.requires or ())
        names = {normal(match[0]) for match in needed if match}
        on = sorted(purl(by_name[name]) for name in names & set(by_name))
        dependencies.append({"ref": purl(package), "dependsOn": on})
    serial = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(purl(package) for package in ordered))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {**component(by_name[own]), "type": "application"}},
        "components": [component(package) for package in ordered if package is not by_name[own]],
        "dependencies": dependencies,
    }


def main() -> int:
    """Write the document to standard output."""
    document = bill_of_materials(list(distributions()))
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
