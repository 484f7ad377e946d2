"""Three pretend editors at the same instructions, judged by the embedded judge: what `make demo` shows."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from editjudge.errors import UsageError
from editjudge.vision.probes.demo import EDITORS, pretend
from editjudge.vision.probes.making import EditFolder

FOLDER = Path("demo")
STORE = str(FOLDER / "editjudge.db")
REPORT = str(FOLDER / "report.html")
TYPED = (
    "editjudge"
    if shutil.which("editjudge")
    else os.path.relpath(Path(sys.executable).with_name("editjudge"))
)


def editjudge(*words: str) -> None:
    """Run a command as you would type it."""
    print("\n$", shlex.join([TYPED, *words]), flush=True)
    subprocess.run([sys.executable, "-m", "editjudge", *words], check=True)


print(
    "1 of 3: drawing edits of photographs and still lifes by three pretend editors ...",
    flush=True,
)
try:
    made = list(pretend())
except UsageError as error:  # `make demo` installs what it needs
    sys.exit(str(error))
shutil.rmtree(FOLDER, ignore_errors=True)
folder = EditFolder(FOLDER)
edits = [folder.add(edit, "edits") for edit in made]
(manifest,) = folder.close()
first = edits[0]
print(
    f"{len(edits)} edits of {len(edits) // len(EDITORS)} source images, each by neat, tidy and leaky. By construction"
)
print(
    "neat and tidy are equally good, and leaky also stains other parts of the image. A first instruction:"
)
print(f"  {first.instruction}\n")

print(
    "2 of 3: judging them by measuring pixels, without a key or a network: half a minute on two cores ..."
)
editjudge(
    "run",
    str(manifest),
    "--rubric",
    "online",
    "--judge",
    "measured",
    "--name",
    "demo",
    "--store",
    STORE,
)
print(
    "The judge abstains from what takes understanding: those factors have no score.\n"
)

print("3 of 3: writing the report ...")
editjudge("report", "demo", "--store", STORE, "-o", REPORT)

images = f"--input {FOLDER}/pictures/{first.id}-input.png --edited {FOLDER}/pictures/{first.id}.png"
print(f"""
Next: open {REPORT} to see every edit with its reasons. Then try, a few seconds each:
  {TYPED} compare demo --a neat --b leaky --store {STORE}   # a real difference: is it found?
  {TYPED} compare demo --a neat --b tidy --store {STORE}    # none by construction: is none claimed?
  {TYPED} judge {images} --instruction {shlex.quote(first.instruction)}
Your own edits: write them down as in {manifest}, and go on with docs/quickstart.md.""")
