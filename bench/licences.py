"""The licences of what the package installs, as a page: `python -m bench.licences > docs/licences.md`."""

from __future__ import annotations

import re
from importlib import metadata


def main() -> None:
    print("# Licences\n")
    print(
        "What `pip install editjudge` and its extras bring, and under which terms, as the packages state it themselves."
    )
    print("Made by `python -m bench.licences`; what an extra brings besides its own names is not followed further.\n")
    print("| package | for | licence |\n|---|---|---|")
    wanted: dict[str, str] = {}
    for requirement in metadata.requires("editjudge") or ():
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        what = extra[1] if extra else "core"
        if name and name[0] != "editjudge" and what not in ("all", "demo", "dev", "fuzz", "release"):
            wanted.setdefault(name[0], what)
    for package, what in sorted(wanted.items(), key=lambda pair: (pair[1] != "core", pair[1], pair[0].lower())):
        print(f"| {package} | {what} | {licence(package)} |")


def licence(name: str) -> str:
    """The expression, else the classifier, else the first line of the field."""
    try:
        told = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return "not installed here"
    classified = [c.rsplit(" :: ", 1)[1] for c in told.get("classifier", []) if c.startswith("License ::")]
    stated = told.get("license_expression") or ", ".join(classified) or told.get("license") or "not stated"
    return str(stated).splitlines()[0][:80].replace("|", "/")


if __name__ == "__main__":
    main()
