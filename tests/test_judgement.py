"""A judgement's fields are declared once: what is added there is in every table, file and document."""

from __future__ import annotations

import pytest

from editjudge.judgement import FIELDS, Judgement, row
from editjudge.rewards.protocol import RequestModels, Terms, openapi
from editjudge.store import schema
from editjudge.store.tables import TABLES


def test_every_declared_field_has_its_column() -> None:
    for field in FIELDS:
        if field.table in ("judgements", "scores"):
            column = field.column or field.name
            assert column in schema.metadata.tables[field.table].columns


def test_rows_exports_and_the_document_of_the_api_have_the_declared_fields() -> None:
    declared = [field.name for field in FIELDS]
    judgement = Judgement("a" * 64, "missing_output", "j", "fidelity", "b" * 64, 0)
    assert list(row(judgement, "edit", None, None)) == declared
    exported = {column.name for column in TABLES["judgements"]}
    assert {field.name for field in FIELDS if field.table == "judgements"} <= exported
    models = RequestModels(Terms(), ["j"], ["r"], ["x"])
    document = openapi(models, secured=False)
    described = document["components"]["schemas"]["Judgement"]["properties"]
    assert {*declared} <= {*described}


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
