"""Is one model better than another? Judge both on the same instructions, and look at the paired differences."""

from __future__ import annotations

# %% Edits by three pretend models of the same pictures. Yours: a manifest with a `model` on each line, or rows.
import tempfile
from pathlib import Path

from sample_edits import sample

desk = Path(tempfile.mkdtemp())
manifest = sample(desk)

# %% Judge two of them. The same call again resumes: what is judged is not asked again.
import editjudge as ej

run = ej.run(
    manifest,
    rubrics="quality",
    judges="measured",
    models=["clean", "sloppy"],
    store=desk / "editjudge.db",
)
print(run)

# %% The answer first, then primary scores and factors with their CI and Holm-corrected p.
comparison = run.compare("clean", "sloppy")
print(comparison)

# %% The same as data, as a forest plot, and as a report to send around.
print(comparison.frame())
print(
    run.plot("clean", "sloppy").save(desk / "forest.html").name,
    run.report(desk / "report.html").name,
)
