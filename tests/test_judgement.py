"""A judgement's fields are declared once: what is added there is in every table, file and document."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from editjudge.judgement import Judgement

WITH_ONE_MORE = """
import importlib.util, sys
from pathlib import Path

spec = importlib.util.find_spec("editjudge.judgement")
source = Path(spec.origin).read_text()
last = '    created: float = field(default=0.0, metadata=_stored_as("time"))\\n'
assert source.count(last) == 1
more = last + '    mood: str | None = field(default=None, metadata=_stored_as("text", added=True))\\n'
module = importlib.util.module_from_spec(spec)
sys.modules["editjudge.judgement"] = module
exec(compile(source.replace(last, more), spec.origin, "exec"), module.__dict__)

from editjudge.judgement import Judgement, Task, row
from editjudge.store import Store, schema
from editjudge.store.export import export_run
from editjudge.rubrics.files import load
from editjudge.store.import_run import check_run, import_run
from editjudge.store.tables import TABLES
from editjudge.store.records import Item
from editjudge.rewards.protocol import RequestModels, Terms, openapi

folder = Path(sys.argv[1])
rubric = load("fidelity")
said = Judgement("a" * 64, "ok", "j", "fidelity", rubric.hash, 0, {"alignment": 1}, created=1.0, mood="sunny \\ud83d")
assert "mood" in schema.judgements.columns
assert "mood" in [column.name for column in TABLES["judgements"]]
assert row(said, "edit", None, None)["mood"] == said.mood
with Store.open(folder / "a.db") as store:
    run = store.open_run("one", {})
    store.add_rubrics([rubric])
    store.add_items(run, [Item("edit")])
    store.add_tasks(run, [Task("edit", "fidelity", "j", 0, said.key)])
    store.write([said])
    assert store.judgement(said.key) == said
    for form in ("jsonl", "parquet"):
        export_run(store, run, folder / form, form)
        with Store.open(folder / f"{form}.db") as other:
            import_run(other, check_run(folder / form, other), folder / form)
            assert other.judgement(said.key).mood == said.mood
            assert [r["mood"] for r in other.judgements(other.find_run("one"))] == [said.mood]
    models = RequestModels(Terms(), ["j"], ["r"], ["x"])
    document = openapi(models, secured=False)
    assert "mood" in document["components"]["schemas"]["Judgement"]["properties"]
print("everywhere")
"""


def test_a_field_of_a_judgement_is_declared_in_one_place(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WITH_ONE_MORE, str(tmp_path)]
    done = subprocess.run(
        program,
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=300,
        check=False,
    )
    assert done.stdout == "everywhere\n", done.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "ok"},
        {"status": "ok", "choices": {}},
        {"status": "invalid", "scores": {"x": 1}},
        {"status": "invalid", "choices": {"x": "a"}},
        {"status": "invalid", "expected": {"x": 1.5}},
        {"status": "abstained", "mass": {"x": 0.5}},
    ],
)
def test_no_verdict_has_a_number_and_no_number_is_without_a_verdict(
    fields: dict[str, object],
) -> None:
    with pytest.raises(ValueError, match=r"^a judgement that is"):
        Judgement("k", judge="j", rubric="r", rubric_hash="h", **fields)  # type: ignore[arg-type]  # meant to be wrong
