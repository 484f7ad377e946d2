"""What an answer must be, and what happens when it is not: the table, row by row, for every rubric."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from editjudge.rubrics import prompt
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import load_one
from editjudge.rubrics.model import Rubric, Slot, Template
from editjudge.rubrics.replies import ThoughtFormat, thought_formats
from editjudge.rubrics.verdict import Failure, Finish, Remark, Verdict
from tests.effort import effort, scan
from tests.rubrics.replies import (
    DRESSINGS,
    DUEL,
    ID,
    PAIR,
    PROSE,
    RAW,
    RUBRICS,
    SHARE,
    THOUGHTS,
    answer,
    at,
    best,
    full,
    headings,
    objects,
    raw,
)
from tests.rubrics.replies import reason as reason_for

LIGHTING = load_one("lighting")
PRESERVATION = load_one("preservation")
JSON_ONLY = [rubric for rubric in RUBRICS if not rubric.answer.sections]
WITH_ID = [rubric for rubric in RUBRICS if rubric.answer.id_key]


def of_each(
    rubrics: Sequence[Rubric],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test of each rubric in turn, as one: pytest takes longer over a test than a check takes."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def each(**given: Any) -> None:
            for rubric in rubrics:
                try:
                    test(rubric=rubric, **given)
                except BaseException as error:
                    error.add_note(f"rubric: {rubric.name}")
                    raise

        signature = inspect.signature(test)
        others = [
            parameter
            for name, parameter in signature.parameters.items()
            if name != "rubric"
        ]
        vars(each)["__signature__"] = signature.replace(parameters=others)
        return each

    return decorate


every_rubric = of_each(RUBRICS)
every_json_only = of_each(JSON_ONLY)
every_with_id = of_each(WITH_ID)


def accepted(outcome: Verdict | Failure) -> Verdict:
    assert isinstance(outcome, Verdict), outcome
    return outcome


def refused(outcome: Verdict | Failure) -> Failure:
    assert isinstance(outcome, Failure), outcome
    assert outcome.reasons
    assert outcome.as_json()["scores"] is None
    return outcome


def codes(remarks: Iterable[Remark]) -> list[str]:
    return [remark.code for remark in remarks]


def worst(rubric: Rubric) -> dict[str, float | None]:
    return {factor.key: factor.scale.worst for factor in rubric.factors}


def worst_answer(rubric: Rubric) -> dict[str, Any]:
    return answer(rubric, worst(rubric))


# --- accepted -------------------------------------------------------------------------------------------------


@every_rubric
@pytest.mark.parametrize("dressing", DRESSINGS)
def test_an_answer_is_accepted_in_every_dressing_after_every_thought(
    rubric: Rubric, dressing: str
) -> None:
    for thought in THOUGHTS:
        text = full(rubric, raw(worst_answer(rubric)), dressing, thought)
        verdict = accepted(check(rubric, text, identifier=ID))
        assert verdict.scores == worst(rubric)
        assert verdict.justifications == dict.fromkeys(
            worst(rubric), reason_for(rubric)
        )
        assert (verdict.violations, verdict.notes) == ((), ())


@every_rubric
def test_every_value_of_a_scale_is_accepted_for_every_factor(rubric: Rubric) -> None:
    for factor in rubric.factors:
        for value in factor.scale.values:
            verdict = accepted(
                check(rubric, full(rubric, raw(answer(rubric, {factor.key: value}))))
            )
            assert verdict.scores == {**best(rubric), factor.key: value}


@every_rubric
@pytest.mark.parametrize(
    "rewrite", [lambda text: f"\ufeff{text}", lambda text: text.replace("\n", "\r\n")]
)
def test_a_byte_order_mark_and_carriage_returns_are_nothing(
    rubric: Rubric, rewrite: Callable[[str], str]
) -> None:
    text = full(rubric, json.dumps(answer(rubric), indent=2), "fenced")
    assert accepted(check(rubric, rewrite(text))).violations == ()


@every_rubric
def test_the_order_of_keys_is_free(rubric: Rubric) -> None:
    def turned(value: Any) -> Any:
        return (
            {key: turned(value[key]) for key in reversed(value)}
            if isinstance(value, dict)
            else value
        )

    verdict = accepted(check(rubric, full(rubric, raw(turned(answer(rubric))))))
    assert verdict.scores == best(rubric)
    assert list(verdict.scores) == [factor.key for factor in rubric.factors]


@every_rubric
def test_a_key_written_with_escapes_is_that_key(rubric: Rubric) -> None:
    text = (
        raw(answer(rubric))
        .replace('"score"', '"sc\\u006Fre"')
        .replace('"effect_score"', '"effect\\u005fscore"')
    )
    assert accepted(check(rubric, full(rubric, text))).scores == best(rubric)


@pytest.mark.parametrize(
    "rubric", [r for r in RUBRICS if r.example], ids=lambda rubric: rubric.name
)
def test_the_example_of_a_rubric_keeps_to_its_contract(rubric: Rubric) -> None:
    assert accepted(check(rubric, rubric.example, strict=True)).violations == ()


@every_json_only
@pytest.mark.parametrize("prose", PROSE)
def test_prose_around_an_answer_is_a_violation_where_only_json_was_asked_for(
    rubric: Rubric, prose: str
) -> None:
    verdict = accepted(check(rubric, PROSE[prose](raw(answer(rubric))), strict=True))
    assert verdict.scores == best(rubric)
    assert codes(verdict.violations) == ["prose"]


@every_rubric
def test_two_equal_answers_are_one_with_a_violation(rubric: Rubric) -> None:
    first = raw(answer(rubric))
    second = json.dumps(answer(rubric), indent=1, sort_keys=True)
    verdict = accepted(check(rubric, full(rubric, f"{first}\n{second}")))
    assert verdict.scores == best(rubric)
    assert codes(verdict.violations) == ["repeated_answer"]


# --- ambiguous ------------------------------------------------------------------------------------------------


@every_json_only
@pytest.mark.parametrize("order", [1, -1])
def test_two_different_answers_are_nobodys_answer(rubric: Rubric, order: int) -> None:
    both = [raw(answer(rubric)), raw(worst_answer(rubric))][::order]
    assert codes(refused(check(rubric, "\n".join(both))).reasons) == ["ambiguous"]


@every_json_only
def test_answers_that_differ_only_in_their_words_are_different(rubric: Rubric) -> None:
    both = raw(answer(rubric)) + raw(answer(rubric, why="Something else was seen."))
    assert codes(refused(check(rubric, both)).reasons) == ["ambiguous"]


@every_json_only
def test_a_second_answer_written_wholly_in_escapes_is_still_a_second_answer(
    rubric: Rubric,
) -> None:
    hidden = raw(worst_answer(rubric))
    for key in sorted(
        {*json.loads(hidden), *_keys(json.loads(hidden))}, key=len, reverse=True
    ):
        hidden = hidden.replace(
            f'"{key}"', '"' + "".join(f"\\u{ord(mark):04x}" for mark in key) + '"'
        )
    assert codes(refused(check(rubric, hidden + raw(answer(rubric)))).reasons) == [
        "ambiguous"
    ]


def _keys(value: Any) -> Iterable[str]:
    for path in objects(value):
        yield from at(value, path)


@every_json_only
@pytest.mark.parametrize(
    ("stray", "status", "code"),
    [
        ('{"%s": 1}', "invalid", "ambiguous"),
        ("{'%s': 1}", "invalid", "not_json"),
        ('{"%s": <an integer>}', "invalid", "not_json"),
        ('{"%s": 1', "truncated", "truncated"),
        ('{"%s', "truncated", "truncated"),
        ("{", "truncated", "truncated"),
    ],
)
def test_a_piece_of_an_answer_after_the_answer_spoils_it(
    rubric: Rubric, stray: str, status: str, code: str
) -> None:
    key = next(iter(answer(rubric)))
    failure = refused(
        check(rubric, f"{raw(answer(rubric))}\n{stray.replace('%s', key)}")
    )
    assert (failure.status, codes(failure.reasons)) == (status, [code])


@every_rubric
def test_an_answer_inside_another_object_is_not_the_answer(rubric: Rubric) -> None:
    assert (
        refused(check(rubric, full(rubric, raw({"answer": answer(rubric)})))).status
        == "invalid"
    )


@every_rubric
def test_an_answer_inside_braces_that_are_not_json_is_refused(rubric: Rubric) -> None:
    assert codes(
        refused(
            check(rubric, full(rubric, f"\\boxed{{{raw(answer(rubric))}}}"))
        ).reasons
    ) == ["not_json"]
    assert codes(
        refused(
            check(rubric, full(rubric, f"the set {{ of {raw(answer(rubric))}"))
        ).reasons
    ) == ["not_json"]


# --- scores ---------------------------------------------------------------------------------------------------

NOT_SCORES = [
    *[
        (literal, "score_decimal")
        for literal in ("6.5", "6.0", "1.0", "6e0", "1E0", "1e400", "1e-9", "0.9999999")
    ],
    *[
        (literal, "score_string")
        for literal in ('"6"', '"1"', '"6/7"', '""', '"six"', '" 1"')
    ],
    *[(literal, "score_bool") for literal in ("true", "false")],
    ("null", "score_null"),
    *[
        (str(n), "score_out_of_scale")
        for n in (0, 2, 8, 11, -1, -7, 99999999999999999999, "9" * 5000)
    ],
    ("-0", "score_out_of_scale"),
    *[(literal, "score_wrong_type") for literal in ("[6]", "[]", "{}", '{"value": 6}')],
]
NOT_JSON = [
    "NaN",
    "Infinity",
    "-Infinity",
    "01",
    "+1",
    "1.",
    ".5",
    "0x1",
    "1_0",
    "1 1",
    "'1'",
    "1;",
    "one",
    "",
]
NOT_JSON += ["\uff16", "\u0661"]  # digits of other scripts


@every_rubric
@pytest.mark.parametrize(
    ("literal", "code"), NOT_SCORES, ids=[literal[:24] for literal, _ in NOT_SCORES]
)
def test_what_is_no_score_refuses_the_whole_answer_and_names_the_factor(
    rubric: Rubric, literal: str, code: str
) -> None:
    for factor in rubric.factors:
        if literal in map(str, factor.scale.values):
            continue
        failure = refused(
            check(rubric, full(rubric, raw(answer(rubric, {factor.key: RAW}), literal)))
        )
        assert [(remark.code, remark.factor) for remark in failure.reasons] == [
            (code, factor.key)
        ]
        assert factor.key in failure.reasons[0].message
        assert len(failure.reasons[0].message) < 300


@every_rubric
def test_what_is_no_json_refuses_the_whole_answer(rubric: Rubric) -> None:
    for factor, literal in itertools.product(rubric.factors, NOT_JSON):
        failure = refused(
            check(rubric, full(rubric, raw(answer(rubric, {factor.key: RAW}), literal)))
        )
        assert (failure.status, codes(failure.reasons)) == ("invalid", ["not_json"])


@every_rubric
def test_every_bad_score_is_named(rubric: Rubric) -> None:
    text = raw(answer(rubric, {factor.key: "high" for factor in rubric.factors}))
    failure = refused(check(rubric, full(rubric, text)))
    assert [remark.factor for remark in failure.reasons] == [
        factor.key for factor in rubric.factors
    ]


@pytest.mark.parametrize(
    "scores", [[], [5], [5, 5, 5], {"success": 5}, 5, "5, 5", None]
)
def test_a_list_of_scores_has_one_for_each_factor(scores: Any) -> None:
    assert codes(
        refused(
            check(PAIR, json.dumps({"score": scores, "reasoning": "Fine."}))
        ).reasons
    ) == ["wrong_type"]


# --- keys -----------------------------------------------------------------------------------------------------


def _is_place_of_factors(rubric: Rubric, path: tuple[str, ...]) -> bool:
    return path == ((rubric.answer.envelope,) if rubric.answer.envelope else ())


@every_rubric
def test_a_missing_key_at_any_level_is_refused(rubric: Rubric) -> None:
    for path in objects(answer(rubric)):
        for key in at(answer(rubric), path):
            value = copy.deepcopy(answer(rubric))
            del at(value, path)[key]
            failure = refused(check(rubric, full(rubric, raw(value))))
            if value == {}:
                assert codes(failure.reasons) == ["no_answer"]
                continue
            is_factor = key in best(rubric) and _is_place_of_factors(rubric, path)
            named = (
                key
                if is_factor
                else next((part for part in path if part in best(rubric)), None)
            )
            expected = ("missing_factor" if is_factor else "missing_key", named)
            assert [(remark.code, remark.factor) for remark in failure.reasons] == [
                expected
            ]


@every_rubric
@pytest.mark.parametrize(
    "extra", ["overall", "score ", "Score", "", "notes", "justification A"]
)
def test_an_extra_key_at_any_level_is_refused(rubric: Rubric, extra: str) -> None:
    for path in objects(answer(rubric)):
        value = copy.deepcopy(answer(rubric))
        at(value, path)[extra] = 5
        failure = refused(check(rubric, full(rubric, raw(value))))
        only_factors = set(at(answer(rubric), path)) == set(best(rubric))
        assert codes(failure.reasons) == [
            "unknown_factor" if only_factors else "unknown_key"
        ]


@every_rubric
@pytest.mark.parametrize(
    "misname",
    [str.swapcase, lambda key: f"{key}s", lambda key: f" {key}", lambda key: key[:-1]],
)
def test_a_misnamed_key_at_any_level_is_refused_as_missing_and_unknown(
    rubric: Rubric, misname: Callable[[str], str]
) -> None:
    for path in objects(answer(rubric)):
        for key in at(answer(rubric), path):
            value = copy.deepcopy(answer(rubric))
            at(value, path)[misname(key)] = at(value, path).pop(key)
            failure = refused(check(rubric, full(rubric, raw(value))))
            kinds = [code.partition("_")[0] for code in codes(failure.reasons)]
            # the only key misnamed leaves no answer at all
            assert kinds in (["missing", "unknown"], ["no"])


def test_a_near_miss_is_pointed_out() -> None:
    text = raw(answer(PRESERVATION)).replace("unchanged_regions", "unchanged_region")
    assert (
        'did you mean "unchanged_regions"?'
        in refused(check(PRESERVATION, text)).reasons[1].message
    )


@every_rubric
@pytest.mark.parametrize(
    "same", [True, False], ids=["equal values", "different values"]
)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_duplicate_key_at_any_level_is_refused(
    rubric: Rubric, same: bool, first: bool
) -> None:
    for path in objects(answer(rubric)):
        for key in at(answer(rubric), path):
            value = copy.deepcopy(answer(rubric))
            place = at(value, path)
            members = {**place}
            twin = {RAW: place[key] if same else 1}
            place.clear()
            place.update({**twin, **members} if first else {**members, **twin})
            failure = refused(check(rubric, full(rubric, raw(value, json.dumps(key)))))
            assert codes(failure.reasons) == ["duplicate_key"]


def test_a_key_is_a_duplicate_of_its_escaped_spelling() -> None:
    text = raw(answer(PRESERVATION)).replace(
        '"score": 7', '"score": 7, "sc\\u006fre": 1', 1
    )
    assert codes(refused(check(PRESERVATION, text)).reasons) == ["duplicate_key"]


@every_rubric
@pytest.mark.parametrize("value", [None, 5, 6.5, "text", True, []])
def test_what_is_no_object_where_one_belongs_is_refused(
    rubric: Rubric, value: Any
) -> None:
    for path in objects(answer(rubric)):
        if path:
            whole = copy.deepcopy(answer(rubric))
            at(whole, path[:-1])[path[-1]] = value
            assert codes(refused(check(rubric, full(rubric, raw(whole)))).reasons) == [
                "wrong_type"
            ]


@every_rubric
@pytest.mark.parametrize(
    "literal", ["null", "7", "6.5", "true", "[]", "{}", '["text"]']
)
def test_a_reason_that_is_not_text_is_refused(rubric: Rubric, literal: str) -> None:
    whole = raw(answer(rubric, why=RAW), *[literal] * len(rubric.factors))
    reasons = refused(check(rubric, full(rubric, whole))).reasons
    assert set(codes(reasons)) == {"wrong_type"}
    assert {remark.factor for remark in reasons} == (
        {None} if rubric.answer.texts else set(best(rubric))
    )


@pytest.mark.parametrize(
    "half", [r"\ud83d", r"\ude00", r"\ud83dx", r"\ud83d\ud83d", r"\ude00\ud83d"]
)
def test_half_of_a_surrogate_pair_is_not_text(half: str) -> None:
    text = raw(answer(PRESERVATION, why=RAW), *[f'"{half}"'] * 3)
    assert codes(refused(check(PRESERVATION, text)).reasons) == ["not_json"]
    outside = raw(answer(PRESERVATION)) + "\ud83d"
    assert codes(refused(check(PRESERVATION, outside)).reasons) == ["not_text"]


# --- the identifier -------------------------------------------------------------------------------------------


@every_with_id
@pytest.mark.parametrize(
    "echoed", ["edit-2", "", " edit-1", "EDIT-1", "edit-1\n", "edit-10", "edit-\uff11"]
)
def test_a_verdict_with_another_identifier_is_somebody_elses(
    rubric: Rubric, echoed: str
) -> None:
    text = raw(answer(rubric, identifier=echoed))
    assert codes(refused(check(rubric, text, identifier=ID)).reasons) == ["wrong_id"]


@every_with_id
@pytest.mark.parametrize("echoed", ["edit-2", "", "none of your business"])
def test_any_identifier_is_accepted_where_none_was_asked_about(
    rubric: Rubric, echoed: str
) -> None:
    assert (
        accepted(check(rubric, raw(answer(rubric, identifier=echoed)))).violations == ()
    )


@every_with_id
@pytest.mark.parametrize(
    "literal", ["1", "1.0", "null", "true", '["edit-1"]', '{"id": "edit-1"}']
)
@pytest.mark.parametrize("identifier", [None, "1", "1.0"])
def test_an_identifier_that_is_not_text_is_refused(
    rubric: Rubric, literal: str, identifier: str | None
) -> None:
    text = raw(answer(rubric, identifier=RAW), literal)
    assert codes(refused(check(rubric, text, identifier=identifier)).reasons) == [
        "wrong_type"
    ]


# --- the length of a reason -----------------------------------------------------------------------------------


def _lengths() -> Iterable[Any]:
    for rubric in RUBRICS:
        yield pytest.param(rubric, "", "justification_empty", id=f"{rubric.name}-empty")
        yield pytest.param(
            rubric, " \n\t", "justification_empty", id=f"{rubric.name}-blank"
        )
        if rubric.answer.words:
            least, most = rubric.answer.words
            for count in (1, least - 1):
                yield pytest.param(
                    rubric,
                    "seen " * count,
                    "justification_too_short",
                    id=f"{rubric.name}-{count}",
                )
            for count in (most + 1, 10 * most):
                yield pytest.param(
                    rubric,
                    "seen " * count,
                    "justification_too_long",
                    id=f"{rubric.name}-{count}",
                )


@pytest.mark.parametrize(("rubric", "why", "code"), list(_lengths()))
def test_a_reason_outside_its_limits_keeps_the_scores_unless_strict(
    rubric: Rubric, why: str, code: str
) -> None:
    text = full(rubric, raw(answer(rubric, why=why)))
    verdict = accepted(check(rubric, text))
    assert verdict.scores == best(rubric)
    assert [(remark.code, remark.factor) for remark in verdict.violations] == [
        (code, key) for key in best(rubric)
    ]
    failure = refused(check(rubric, text, strict=True))
    assert (failure.status, set(codes(failure.reasons))) == ("invalid", {code})


@pytest.mark.parametrize(
    "rubric", [r for r in RUBRICS if r.answer.words], ids=lambda rubric: rubric.name
)
def test_the_limits_themselves_are_inside(rubric: Rubric) -> None:
    for count in rubric.answer.words or ():
        assert (
            accepted(
                check(
                    rubric, raw(answer(rubric, why="\u00a0seen\n" * count)), strict=True
                )
            ).violations
            == ()
        )


@pytest.mark.parametrize(
    "why",
    [
        "左边的红色谷仓完全保留了原来的木板。",
        "左の赤い納屋はそのまま残っています。",
        "โรงนาสีแดงทางซ้ายยังคงเหมือนเดิมทุกประการ",
        "影" * 400,
    ],
    ids=["Chinese", "Japanese", "Thai", "long"],
)
def test_words_are_not_counted_in_scripts_without_spaces_and_that_is_said(
    why: str,
) -> None:
    verdict = accepted(
        check(PRESERVATION, raw(answer(PRESERVATION, why=why)), strict=True)
    )
    assert verdict.violations == ()
    assert codes(verdict.notes) == ["words_not_counted"] * 3


@pytest.mark.parametrize(
    "why",
    [
        "왼쪽의 빨간 헛간은 그대로입니다.",
        "Красный сарай слева не изменился.",
        "الحظيرة كما هي",
    ],
)
def test_words_are_counted_in_other_scripts_with_spaces(why: str) -> None:
    verdict = accepted(check(PRESERVATION, raw(answer(PRESERVATION, why=why))))
    assert codes(verdict.violations) == ["justification_too_short"] * 3


# --- no answer ------------------------------------------------------------------------------------------------


@every_rubric
@pytest.mark.parametrize("indent", [None, 2])
def test_a_reply_cut_off_anywhere_is_never_accepted(
    rubric: Rubric, indent: int | None
) -> None:
    text = full(
        rubric,
        json.dumps(
            answer(rubric, why='A "\u5f71" \\ \U0001f600 {brace}'), indent=indent
        ),
    )
    begins = text.index("{")
    for cut in range(len(text)):
        failure = refused(check(rubric, text[:cut]))
        expected = "truncated" if cut > begins else "no_answer" if cut else "empty"
        assert codes(failure.reasons) == [expected], text[:cut][-40:]
        assert failure.status == ("truncated" if cut > begins else "invalid")


@every_rubric
def test_a_dressed_reply_cut_off_inside_its_json_is_never_accepted(
    rubric: Rubric,
) -> None:
    for thought, dressing in zip(
        ["none", *THOUGHTS][:9:3],
        ["carriage returns", "fenced", "fenced as json"],
        strict=True,
    ):
        text = full(rubric, raw(answer(rubric, why="Short.")), dressing, thought)
        for cut in range(len(THOUGHTS[thought]), text.rindex("}") + 1):
            refused(check(rubric, text[:cut]))


@every_rubric
@pytest.mark.parametrize(
    ("finish", "status", "code"),
    [("length", "truncated", "truncated"), ("refusal", "refused", "refusal")],
)
def test_what_the_provider_says_of_the_end_outweighs_a_complete_answer(
    rubric: Rubric, finish: Finish, status: str, code: str
) -> None:
    for text in (full(rubric, raw(answer(rubric))), ""):
        failure = refused(check(rubric, text, finish=finish))
        assert (failure.status, codes(failure.reasons)) == (status, [code])


@every_rubric
@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m unable to assess images of people.",
        "Sorry, I cannot assist with this request.",
        "I won't rate this.",
        "As an AI, I do not judge people.",
        "This goes against my usage policies.",
        '{"error": "I can not do this"}',
        "<think>They want a score.</think>I must decline.",
    ],
)
def test_a_model_that_declines_has_refused(rubric: Rubric, text: str) -> None:
    failure = refused(check(rubric, text))
    assert (failure.status, codes(failure.reasons)) == ("refused", ["refusal"])


@every_rubric
@pytest.mark.parametrize(
    "text",
    ["", " \r\n\t", "\ufeff", "\ufeff\n", "<think>7</think>", "7</think>\n", "\u3000"],
)
def test_nothing_is_empty(rubric: Rubric, text: str) -> None:
    failure = refused(check(rubric, text))
    assert (failure.status, codes(failure.reasons)) == ("invalid", ["empty"])


@every_rubric
@pytest.mark.parametrize(
    "text",
    [
        "As an AI critic, I find that both pictures agree.",
        "The left tree is gone. " * 30 + "I cannot see it.",
    ],
)
def test_a_model_that_only_talks_has_not_refused(rubric: Rubric, text: str) -> None:
    failure = refused(check(rubric, text))
    assert (failure.status, codes(failure.reasons)) == ("invalid", ["no_answer"])


@every_rubric
@pytest.mark.parametrize(
    "text",
    [
        "7",
        "7 7 7",
        "Alignment: 7/7",
        "[7, 7]",
        "{}",
        "{7}",
        "null",
        "```json\n```",
        "}",
    ],
)
def test_a_number_without_its_envelope_is_no_answer(rubric: Rubric, text: str) -> None:
    failure = refused(check(rubric, text))
    assert (failure.status, codes(failure.reasons)) == ("invalid", ["no_answer"])


@every_rubric
def test_the_contract_of_one_rubric_refuses_the_answer_of_another(
    rubric: Rubric,
) -> None:
    for other in RUBRICS:
        if other.contract()["factors"] != rubric.contract()["factors"]:
            assert (
                refused(check(rubric, full(other, raw(answer(other))))).status
                == "invalid"
            )


# --- thoughts -------------------------------------------------------------------------------------------------


@every_rubric
@pytest.mark.parametrize(
    "around",
    [
        "<think>Draft: {draft} No, rather:</think>{answer}",
        "<think>{draft}</think>{answer}",
        "Draft: {draft} No, rather:</think>{answer}",
        "<think>a<think>{draft}</think>{draft}</think>{answer}",
        "<think>a</think>{draft}</think>{answer}",
        "<THINKING>{draft}</Thinking>\n{answer}",
        "<think>The set {{left, right: {draft}</think>{answer}",
        "{draft} the set {{left, right}} and {{ 1 </think> }} </think>{answer}",
        "{answer}<think>Or was it {draft}?</think>",
    ],
)
def test_a_thought_is_never_searched_for_scores(rubric: Rubric, around: str) -> None:
    # Lighting is told by its JSON alone here, since its headings would stand on both sides of the thought.
    text = around.format(draft=raw(answer(rubric)), answer=raw(worst_answer(rubric)))
    verdict = accepted(check(rubric, text))
    assert verdict.scores == worst(rubric)
    assert set(codes(verdict.violations)) <= {"missing_section"}


@every_rubric
@pytest.mark.parametrize(
    "around",
    [
        "<think>{draft}",
        "<think>{draft} and so",
        "{draft}<think>Wait, that is wrong",
        "<think>a<think>b</think>{draft}",
        "<think>a</think>{draft}<think>",
        "{{ see <think> }} {draft}",
    ],
)
def test_a_thought_that_never_ends_leaves_no_answer(
    rubric: Rubric, around: str
) -> None:
    failure = refused(check(rubric, around.format(draft=raw(answer(rubric)))))
    assert (failure.status, codes(failure.reasons)) == ("truncated", ["truncated"])


@every_rubric
@pytest.mark.parametrize(
    ("around", "status"),
    [
        ("<think>{draft}</think>", "invalid"),
        ("{draft}</think>", "invalid"),
        ("{draft}</think>I cannot decide.", "refused"),
        ("Draft: {draft}. The set {{left, right </think> I cannot decide.", "refused"),
    ],
)
def test_an_answer_that_stands_only_in_a_thought_is_none(
    rubric: Rubric, around: str, status: str
) -> None:
    assert (
        refused(check(rubric, around.format(draft=raw(answer(rubric))))).status
        == status
    )


every_format = pytest.mark.parametrize(
    "form", thought_formats(), ids=lambda form: form.example[0].strip()
)


@every_rubric
@every_format
def test_a_draft_in_a_thought_of_any_format_is_never_the_answer(
    rubric: Rubric, form: ThoughtFormat
) -> None:
    opening, closing = form.example
    draft = raw(answer(rubric))
    final = raw(worst_answer(rubric))
    alone = [f"Draft: {draft} No:{closing}{final}"] if form.preopened else []
    for text in (
        f"{opening}Draft: {draft} No, rather:{closing}{final}",
        f"{opening}{{{closing}\n{final}",
        *alone,
    ):
        verdict = accepted(check(rubric, text))
        assert verdict.scores == worst(rubric)
        assert set(codes(verdict.violations)) <= {"missing_section"}


@every_rubric
@every_format
def test_a_thought_of_any_format_that_never_ends_leaves_no_answer(
    rubric: Rubric, form: ThoughtFormat
) -> None:
    failure = refused(check(rubric, f"{form.example[0]}Draft: {raw(answer(rubric))}"))
    assert (failure.status, codes(failure.reasons)) == ("truncated", ["truncated"])


@every_format
def test_the_list_of_a_thought_of_any_format_decides_nothing(
    form: ThoughtFormat,
) -> None:
    opening, closing = form.example
    text = f"{opening}Draft:\n{lit(0, '- bench: not allowed')}\n{closing}\n{lit(1, '- sky: allowed')}"
    verdict = accepted(check(LIGHTING, text))
    assert (verdict.scores, verdict.violations) == ({"Contextual_Preservation": 1}, ())


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        *(
            (f"<{name}>", f"</{name}>")
            for name in ("thinking", "thought", "thoughts", "reasoning", "reflection")
        ),
        *(
            (f"<{name}>", f"</{name}>")
            for name in (
                "scratchpad",
                "analysis",
                "seed:think",
                "mm:think",
                "longcat_think",
            )
        ),
        ('<think budget="100">', "</think>"),
        ("<Reasoning type='draft' open>", "</Reasoning >"),
        ("<|think|>", "<|/think|>"),
        ("&lt;think&gt;", "&lt;/think&gt;"),
        (
            "<|channel|>commentary to=functions.score <|constrain|>json<|message|>",
            "<|channel|>final<|message|>",
        ),
        (
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
        ),
        ("<|open|>think<|sep|>", "<|open|>response<|sep|>"),
        ("Here's my thought process:", "Here's my response:"),
        ("<think>", "<|/thinking|>"),
        ("<unused94>thought\n", "<unused95>"),
        ("Thinking...\n", "...done thinking.\n\n"),
        ("Thinking…\n", "…done thinking."),
        ("<|thought_start|>", "<|thought_end|>"),
        ("<|begin_of_thinking|>", "<|end_of_thinking|>"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|think:start|>", "<|think:end|>"),
        ("<|begin_of_thought|>", "<|end_of_thought|>"),
        ("[THINKING]", "[/THINKING]"),
        ("[Reasoning]", "[/Reasoning]"),
        ("[BEGIN_REASONING]", "[END_REASONING]"),
        *(
            (f"<{name}>", f"</{name}>")
            for name in (
                "chain-of-thought",
                "thought-process",
                "inner monologue",
                "CoT",
                "cot_1",
                "reason",
                "my.analysis",
            )
        ),
        ("< think >", "< / think >"),
        ("＜think＞", "＜/think＞"),
        ("<｜think｜>", "<｜/think｜>"),
        ("［think］", "［/think］"),
        (r"\u003cthink\u003e", r"\u003c/think\u003e"),
        ("【thinking】", "【/thinking】"),
        ("<details><summary>Thinking</summary>", "</details>"),
        ("<details>\n<summary>Thought for 3 seconds</summary>", "</details>"),
        (
            "<details><summary>My reasoning</summary><details><summary>Draft</summary>a</details>",
            "</details>",
        ),
        ("<|channel|>analysis We see", "<|channel|>final"),
        ("analysiswe need to score.", "assistantfinal"),
    ],
)
def test_a_mark_of_a_thought_counts_however_it_is_spelled(
    opening: str, closing: str
) -> None:
    draft = raw(answer(PRESERVATION))
    final = raw(worst_answer(PRESERVATION))
    assert accepted(
        check(PRESERVATION, f"{opening}\n{draft}\n{closing}{final}")
    ).scores == worst(PRESERVATION)
    assert (
        refused(check(PRESERVATION, f"{opening}\n{draft}\n{final}")).status
        == "truncated"
    )


def test_a_mark_of_one_format_inside_a_thought_of_another_is_words() -> None:
    draft = raw(answer(PRESERVATION))
    final = raw(worst_answer(PRESERVATION))
    text = f"<think>They may write [THINK] or <|channel>. {draft}</think>{final}"
    assert accepted(check(PRESERVATION, text)).scores == worst(PRESERVATION)


@every_rubric
@pytest.mark.parametrize(
    "prose",
    [
        "After some thinking (analysis below), my reasoning is short. ",
        "Thinking... it over, I see a <cotton> shirt and a [reasonable] change. ",
        "I think <b>so</b>: see [my reasoning](https://example.org) and [a note]. ",
        "<details><summary>Scores</summary></details> <thoughtful> <scott> [thinker] ",
        "Analysis: a > b and b < reason. ",
    ],
)
def test_an_answer_that_mentions_thinking_in_prose_stays_an_answer(
    rubric: Rubric, prose: str
) -> None:
    assert accepted(
        check(rubric, headings(rubric) + prose + raw(answer(rubric)) + prose)
    ).scores == best(rubric)


def test_a_closed_tag_without_content_ends_no_thought() -> None:
    failure = refused(
        check(PRESERVATION, f"<think>a<think/>{raw(answer(PRESERVATION))}")
    )
    assert failure.status == "truncated"


@every_rubric
@pytest.mark.parametrize(
    "words",
    [
        "</think>",
        "<think>",
        "<think> a </think>",
        "</think> {",
        "[THINK]",
        "◁think▷",
        "```",
        '"}',
        "\\",
    ],
)
def test_tags_fences_and_braces_inside_a_reason_are_words(
    rubric: Rubric, words: str
) -> None:
    why = f"{reason_for(rubric)[:-1]} {words}"
    verdict = accepted(check(rubric, full(rubric, raw(answer(rubric, why=why)))))
    assert verdict.scores == best(rubric)
    assert set(verdict.justifications.values()) == {why}
    assert verdict.violations == ()


# --- lighting -------------------------------------------------------------------------------------------------


def lit(
    score: int, *lines: str, rest: str = "## CP Decision\nAs listed.\n\n## JSON\n"
) -> str:
    listed = "".join(f"{line}\n" for line in lines)
    return f"## Difference Analysis\n{listed}\n{rest}{raw(answer(LIGHTING, {'Contextual_Preservation': score}))}"


MARKS = {"allowed": 1, "ignored": 1, "not allowed": 0, "unsure": 0}


@pytest.mark.parametrize(
    "marks",
    [m for n in (1, 2, 3) for m in itertools.product(MARKS, repeat=n)],
    ids=", ".join,
)
def test_the_decision_follows_from_the_list(marks: tuple[str, ...]) -> None:
    lines = [f"- Difference {n}: {mark}" for n, mark in enumerate(marks)]
    follows = min(MARKS[mark] for mark in marks)
    assert accepted(check(LIGHTING, lit(follows, *lines))).violations == ()
    reasons = refused(check(LIGHTING, lit(1 - follows, *lines))).reasons
    assert [(r.code, r.factor) for r in reasons] == [
        ("inconsistent", "Contextual_Preservation")
    ]


ENDINGS = [
    ": {}",
    ":{}",
    ": {}.",
    ": **{}**",
    ":** {}",
    ": *{}*.",
    ": `{}`",
    ": __{}__ ",
    ": {}" + " " * 200,
    ": {}\u00a0",
    ": {}\r",
    ":\t{}",
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_mark_counts_however_it_is_dressed(ending: str) -> None:
    spellings: list[Callable[[str], str]] = [
        str,
        str.upper,
        str.title,
        lambda mark: mark.replace(" ", "  "),
    ]
    for mark, spell in itertools.product(MARKS, spellings):
        line = "- The bench by the hedge" + ending.format(spell(mark))
        assert accepted(check(LIGHTING, lit(MARKS[mark], line))).violations == ()
        assert codes(refused(check(LIGHTING, lit(1 - MARKS[mark], line))).reasons) == [
            "inconsistent"
        ]


@pytest.mark.parametrize("score", [0, 1])
@pytest.mark.parametrize(
    "line", ["No difference was found.", "- None.", "The light has moved.", ""]
)
def test_a_section_without_a_list_is_not_checked(line: str, score: int) -> None:
    assert accepted(check(LIGHTING, lit(score, line))).violations == ()


FAILING = [
    ": not allowed (object removed)",
    ": not allowed, an object is missing",
    ": not allowed because the bench is gone",
    " - not allowed",
    " – not allowed",
    "—not allowed",
    " -> not allowed",
    ': "not allowed"',
    ' "not allowed"',
    " “not allowed”.",
    " 'not allowed'",
    " **not allowed**",
    ": **Not** allowed",
    " (NOT ALLOWED)",
    " [not allowed].",
    ": not-allowed",
    ": NOT_ALLOWED",
    ": disallowed",
    " disallowed",
    ": dis-allowed",
    ": un-allowed",
    ": isn’t allowed",
    ": is not allowed",
    ": this is not allowed",
    ": not an allowed change",
    ": never allowed",
    ": not permitted",
    ": forbidden",
    ": not sure",
    ". Not allowed.",
    ". Allowed: no",
    ". Allowed? No.",
    ": allowed? no",
    ": allowed: false",
    ": \u274c not allowed",
    "\uff1anot allowed",
    "\n  The bench: not allowed",
]


@pytest.mark.parametrize("ending", FAILING)
def test_a_failing_mark_is_read_however_it_is_written(ending: str) -> None:
    for lines in (
        ["- sky: allowed", f"- The bench has gone{ending}"],
        [f"1. The bench has gone{ending}"],
    ):
        assert accepted(check(LIGHTING, lit(0, *lines))).violations == ()
        assert codes(refused(check(LIGHTING, lit(1, *lines))).reasons) == [
            "inconsistent"
        ]


@pytest.mark.parametrize(
    "lines",
    [
        "| Difference | Mark |\n|---|---|\n| sky | allowed |\n| bench | not allowed |",
        "| sky | allowed |\n|---|---|\n| bench | not allowed |\n|---|---|",
        "| bench | not allowed |\n|---|---|\n| sky | allowed |",
        "Here are all the observed differences:\n- sky: allowed\n- bench: not allowed",
        "| 1 | sky | allowed |\n| 2 | bench | **not allowed** | it is gone |",
        "sky: allowed\nbench: not allowed",
        "- The bench behind the hedge\n  has gone: not allowed",
        "* Background:\n  * sky: allowed\n  * bench: not allowed",
    ],
)
def test_a_failing_mark_is_read_wherever_it_stands_in_its_line(lines: str) -> None:
    assert accepted(check(LIGHTING, lit(0, lines))).violations == ()
    assert codes(refused(check(LIGHTING, lit(1, lines))).reasons) == ["inconsistent"]


UNREADABLE = [
    "",
    ": not allowed (not a source of light)",
    ": unsure (may be the light)",
    ', which cannot count as "allowed"',
    *(
        f" {words}"
        for words in (
            "beyond (allowed)",
            'exceeds "allowed"',
            "beyond **allowed**",
            'lies outside of "allowed"',
            "far from: allowed",
            "false: allowed",
            "nope (allowed)",
            "not at all: allowed",
            "no longer *ignored*",
            "in no way (allowed)",
            "by no means: allowed",
            "anything but: allowed",
            "cannot be said to be: ignored",
        )
    ),
    *(
        f": {mark}"
        for mark in (
            "!allowed",
            "! allowed",
            "¬allowed",
            "≠ allowed",
            "🔴 allowed",
            "allowed [ ]",
            "[ ] allowed",
        )
    ),
    " != allowed",
    ": far from: allowed",
    " ❌: allowed",
    ", a violation: allowed",
    ", is that right? : allowed",
    ": allowed. The vase is new, a violation.",
    ": allowed (a violation)",
    ": allowed, violates the rules",
    ": allowed (the bench is gone)",
    ": allowed | breaks the rules",
    ": allowed\n  The vase is new, a violation.",
    ": permitted",
    ": allowed {see the left edge}, or is it",
    ": allowed?",
    ": allowed, but the vase is new",
    ": allowed (not by the rules)",
    ": allowed if the lamp did it",
    ": allowed or not allowed",
    ": allowed / not allowed",
    ": allowed under no circumstances",
    ": would be allowed",
    ": hardly allowed",
    ": not really allowed",
    ": not: allowed",
    ": neither allowed nor ignored",
    ": not ignored",
    ": nicht erlaubt",
    ": ~~not~~ allowed",
    ": allowed \u274c",
    ": not allowed? allowed",
    " is allowed",
    ": " + "very " * 500 + "odd",
]


@pytest.mark.parametrize("ending", UNREADABLE)
def test_a_line_whose_mark_cannot_be_read_leaves_the_score_as_it_is_with_a_violation(
    ending: str,
) -> None:
    lines = ["- sky: allowed", f"- The bench has gone{ending}"]
    for score in (0, 1):
        verdict = accepted(check(LIGHTING, lit(score, *lines)))
        assert verdict.scores == {"Contextual_Preservation": score}
        assert codes(verdict.violations) == ["unread_mark"]


@pytest.mark.parametrize("score", [0, 1])
@pytest.mark.parametrize(
    "lines",
    [
        "- sky: allowed\n- Not allowed: none",
        "- sky: allowed\n- Not allowed: 0",
        "- sky: allowed\n- Unsure: 0",
        "- sky: allowed\n- Not allowed: the bench has gone",
        "- sky: allowed\n- [not allowed] The bench has gone",
        *(
            f"- sky: allowed\n- Object removal: not allowed ({remark})"
            for remark in (
                "not observed",
                "absent",
                "zero cases",
                "0 found",
                "none seen",
                "no object removed",
                "ruled out",
            )
        ),
        "- sky: allowed\n- Geometry changes [not allowed]: absent",
        '- sky: allowed\n- Shadow moved: not "not allowed"',
        "- sky: allowed\n- Shadow moved: hardly unsure",
        "- sky: allowed\n- Shadow moved, by no means: not allowed",
        '- sky: allowed\n- Sign text readable: "Forbidden"',
        '- sky: allowed\n- The sign now reads "not allowed"',
        "- sky: allowed\n**The bench is gone, a violation**",
        "- sky: allowed\n#### The bench is gone, a violation",
        "The bench is gone, which breaks the rules:\n- sky: allowed",
        "- The bench is gone, which breaks the rules:\n  - sky: allowed",
        "| The bench is gone, a violation |\n|---|\n| sky | allowed |",
        "| sky | allowed |\n| The bench is gone, a violation |\n|---|",
        "| sky | allowed |\n|---|---|\n| The bench is gone | violates |\n|---|---|",
        "| The bench is gone | violates |\n|---|---|\n| sky | allowed |\n|---|---|",
        "- sky: allowed\n- Objects added or removed (not allowed): did not happen",
        "**Allowed**\n- sky\n\n**Not allowed**\n- bench",
        "Allowed:\n- sky\nNot allowed:\n- bench",
        "- Not allowed\n  - bench",
        "sky: allowed\nbench gone",
        "- A change of geometry is not allowed",
        "- sky: allowed\n" + "- more\n" * 1_001,
    ],
)
def test_groups_and_rules_are_not_taken_for_marks(lines: str, score: int) -> None:
    assert codes(accepted(check(LIGHTING, lit(score, lines))).violations) == [
        "unread_mark"
    ]


def test_a_difference_that_is_told_beside_the_list_keeps_a_failing_score() -> None:
    lines = [
        "- sky: allowed",
        "",
        "There is also a vase on the table that was not there.",
    ]
    assert codes(accepted(check(LIGHTING, lit(0, *lines))).violations) == [
        "unread_mark"
    ]
    assert accepted(check(LIGHTING, lit(1, *lines))).violations == ()


@pytest.mark.parametrize(
    "line",
    [
        "- The lamp is no longer lit: allowed",
        "- The sky outside the window, at the top: allowed",
        "- sky: ✅ allowed",
        '- sky (light): "allowed"',
        "| sky | allowed |",
        "| Difference | Mark |\n|---|---|\n| sky | allowed |\n|---|---|",
        "### Background\n- sky: allowed",
        "- sky: allowed (the light)",
        "- sky: allowed, since light explains it",
        "- Allowed: yes",
    ],
)
def test_a_passing_mark_may_have_a_reason_that_leaves_no_doubt(line: str) -> None:
    assert codes(refused(check(LIGHTING, lit(0, line))).reasons) == ["inconsistent"]
    assert accepted(check(LIGHTING, lit(1, line))).violations == ()


def test_a_contradiction_is_told_without_the_score_that_would_be_accepted() -> None:
    for score, line in ((1, "- bench: not allowed"), (0, "- sky: allowed")):
        failure = refused(check(LIGHTING, lit(score, line)))
        assert not re.search(r"\d", failure.reasons[0].message)


@every_rubric
@pytest.mark.parametrize(
    "spelling", ['"{}"', "{}.0", '"{}/7"', "[{}]", '{{"value": {}}}']
)
def test_no_message_names_a_score_beyond_the_scale_as_a_whole(
    rubric: Rubric, spelling: str
) -> None:
    body = raw(
        answer(rubric, {factor.key: RAW for factor in rubric.factors}),
        *(spelling.format(factor.scale.best) for factor in rubric.factors),
    )
    failure = refused(check(rubric, full(rubric, body)))
    assert len(failure.reasons) == len(rubric.factors)
    for remark, factor in zip(failure.reasons, rubric.factors, strict=True):
        message = remark.message.replace(factor.scale.words, "").replace(
            "a list of 1", ""
        )
        assert str(factor.scale.best) not in message


def test_unmarked_lines_do_not_hide_marked_ones() -> None:
    lines = [
        "Differences:",
        "- The bench has gone: not allowed",
        "",
        "- The sky is darker",
        "That is all.",
    ]
    assert codes(refused(check(LIGHTING, lit(1, *lines))).reasons) == ["inconsistent"]
    assert accepted(check(LIGHTING, lit(0, *lines))).scores == {
        "Contextual_Preservation": 0
    }


@pytest.mark.parametrize(
    "text",
    [
        "- bench: not allowed\n{json}",
        "# difference analysis:\n- bench: not allowed\n{json}",
        "**Difference Analysis**\n- bench: not allowed\n## CP Decision\n## JSON\n{json}",
        "## Difference Analysis\n- sky: allowed\n## CP Decision\n"
        "## Difference Analysis\n- bench: not allowed\n## JSON\n{json}",
        "## JSON\n{json}\n## Difference Analysis\n- bench: not allowed",
        "## Difference Analysis\r\n- bench: not allowed\r\n## JSON\r\n{json}",
        "## Difference Analysis\n- bench {{left}}: not allowed\n## JSON\n{json}",
        "## Difference Analysis\n- bench: not allowed\n{json}\n## JSON\n{json}",
    ],
)
def test_the_list_counts_wherever_it_stands(text: str) -> None:
    passing, failing = (
        raw(answer(LIGHTING, {"Contextual_Preservation": score})) for score in (1, 0)
    )
    assert codes(refused(check(LIGHTING, text.format(json=passing))).reasons) == [
        "inconsistent"
    ]
    accepted(check(LIGHTING, text.format(json=failing)))


@pytest.mark.parametrize(
    "elsewhere",
    ["<think>- bench: not allowed\n</think>", "<think>\n- bench: unsure\n</think>\n"],
)
def test_a_list_inside_a_thought_is_set_aside(elsewhere: str) -> None:
    assert (
        accepted(check(LIGHTING, elsewhere + lit(1, "- sky: allowed"))).violations == ()
    )


def test_marks_in_the_reason_are_not_the_list() -> None:
    body = raw(
        answer(
            LIGHTING,
            {"Contextual_Preservation": 1},
            why="The bench:\nnot allowed\n- bench: not allowed",
        )
    )
    assert accepted(check(LIGHTING, headings(LIGHTING) + body)).violations == ()


def test_a_list_decides_in_a_rubric_that_asks_for_no_sections_too() -> None:
    rubric = dataclasses.replace(
        LIGHTING, answer=dataclasses.replace(LIGHTING.answer, sections=())
    )
    assert codes(refused(check(rubric, lit(1, "- bench: not allowed"))).reasons) == [
        "inconsistent"
    ]
    assert codes(
        accepted(check(rubric, lit(0, "- bench: not allowed"))).violations
    ) == ["prose"]


@pytest.mark.parametrize("missing", LIGHTING.answer.sections)
def test_a_missing_section_is_a_violation(missing: str) -> None:
    verdict = accepted(
        check(
            LIGHTING,
            full(LIGHTING, raw(answer(LIGHTING))).replace(f"## {missing}\n", ""),
            strict=True,
        )
    )
    assert [remark.message for remark in verdict.violations] == [
        f'the section "## {missing}" is missing'
    ]
    assert codes(verdict.violations) == ["missing_section"]


def test_lighting_without_any_reasoning_misses_every_section() -> None:
    verdict = accepted(check(LIGHTING, raw(answer(LIGHTING))))
    assert codes(verdict.violations) == ["missing_section"] * 3


@pytest.mark.parametrize(
    "heading", ["# {}", "###### {}:", "##{}", "  ## {}  ", "## {} : ", "##\t{}\r"]
)
def test_a_heading_counts_however_it_is_spaced(heading: str) -> None:
    text = "\n".join(
        heading.format(title.upper()) for title in LIGHTING.answer.sections
    )
    assert (
        accepted(check(LIGHTING, f"{text}\n{raw(answer(LIGHTING))}")).violations == ()
    )


@pytest.mark.parametrize("after", ["Done.", "```\nDone.", "[]", "{}", "## JSON"])
def test_text_after_the_json_is_a_violation(after: str) -> None:
    verdict = accepted(
        check(
            LIGHTING, f"{full(LIGHTING, raw(answer(LIGHTING)))}\n{after}", strict=True
        )
    )
    assert codes(verdict.violations) == ["text_after_json"]


@pytest.mark.parametrize(
    "earlier",
    ['{"Contextual_Preservation": {"reason": "", "score": 0}}', '{"score": 0,}'],
)
def test_the_last_of_several_answers_counts_where_the_last_is_asked_for(
    earlier: str,
) -> None:
    verdict = accepted(
        check(LIGHTING, f"Draft: {earlier}\n{full(LIGHTING, raw(answer(LIGHTING)))}")
    )
    assert verdict.scores == best(LIGHTING)
    assert (codes(verdict.violations), codes(verdict.notes)) == ([], ["earlier_answer"])


@pytest.mark.parametrize(
    "last",
    [
        '{"score": 0}',
        '{"Contextual_Preservation": {"reason": "Gone.", "score": 0.0}}',
        "{'score': 0}",
        '{"Cont',
        "{",
    ],
)
def test_a_last_answer_that_is_broken_is_not_replaced_by_an_earlier_one(
    last: str,
) -> None:
    refused(check(LIGHTING, f"{full(LIGHTING, raw(answer(LIGHTING)))}\n{last}"))


# --- what is said of it ---------------------------------------------------------------------------------------


@every_rubric
def test_a_refusal_says_a_bounded_number_of_things_in_bounded_words(
    rubric: Rubric,
) -> None:
    text = raw(
        {**answer(rubric), **{f"{n}" + "k" * 1000: "v" * 1000 for n in range(1000)}}
    )
    failure = refused(check(rubric, full(rubric, text)))
    assert len(failure.reasons) <= 40
    assert all(len(remark.message) < 300 for remark in failure.reasons)


def test_the_free_text_beside_a_list_is_the_reason_for_every_factor() -> None:
    verdict = accepted(
        check(PAIR, '{"score": [3, 10], "reasoning": "The barn is blue."}')
    )
    assert verdict.scores == {"success": 3, "restraint": 10}
    assert verdict.justifications == {
        "success": "The barn is blue.",
        "restraint": "The barn is blue.",
    }


# --- hostile sizes --------------------------------------------------------------------------------------------

SIZE = 2_000_000
SCANS = 35
"""Passes of a regular expression that tries every character. The dearest reply takes 17; one that went over its text
again for each of its braces, quotes or lines would take thousands."""


def times(piece: str) -> str:
    return piece * (SIZE // len(piece))


def big(rubric: Rubric, why: str) -> str:
    return full(
        rubric,
        json.dumps(answer(rubric, why=RAW), ensure_ascii=False).replace(RAW, why, 1),
    )


_LIT = raw(answer(LIGHTING))
_KEPT = raw(answer(PRESERVATION))
_MANY = ",".join(f'"unchanged_region{n}":1' for n in range(80_000))

HOSTILE: dict[str, Callable[[], str]] = {
    "opening braces": lambda: times("{"),
    "opening brackets": lambda: times("["),
    "closing braces": lambda: times("}"),
    "quotes": lambda: times('"'),
    "escaped quotes": lambda: times('\\"'),
    "escaped quotes in a candidate": lambda: '{"score": "' + times('\\"'),
    "backslashes in a candidate": lambda: '{"score": "' + times("\\"),
    "quotes in a brace": lambda: "{" + times('"'),
    "apostrophes in a brace": lambda: '{"' + times("'"),
    "beginnings of keys": lambda: '{"' + times("'s"),
    "pairs of braces": lambda: times("{}"),
    "objects that begin": lambda: times('{"score":'),
    "small candidates": lambda: times('{"score":1}'),
    "equal answers": lambda: times(_KEPT),
    "brackets inside a candidate": lambda: '{"score":' + "[" * 100_000,
    "closed brackets inside a candidate": lambda: (
        '{"score":' + "[" * 100_000 + "]" * 100_000 + "}"
    ),
    "deeply nested objects": lambda: '{"score":' * 20_000 + "1" + "}" * 20_000,
    "a list of numbers": lambda: '{"score":[' + times("1,"),
    "a long number": lambda: _KEPT.replace("7", times("7"), 1),
    "a long decimal": lambda: _KEPT.replace("7", "7." + times("7"), 1),
    "a long key": lambda: _KEPT.replace("image_id", times("k")),
    "many unknown keys": lambda: "{" + _MANY + ', "score": 1}',
    "many unknown keys in an entry": lambda: _KEPT.replace(
        '"score"', f'{_MANY}, "score"', 1
    ),
    "many equal keys": lambda: "{" + '"score":1,' * 12_000 + '"score":1}',
    "fences": lambda: "```json\n" * 20_000 + _KEPT,
    "fences on one line": lambda: "```" * 20_000 + "x\n" + _KEPT,
    "a fence with a long name": lambda: "```" + times("a") + " x\n" + _KEPT,
    "a fence with a long tail": lambda: "```" + times(" ") + "x\n" + _KEPT,
    "lines of spaces before fences": lambda: times(" " * 999 + "`\n") + _KEPT,
    "opening thoughts": lambda: "<think>" * 20_000 + _KEPT,
    "closing thoughts": lambda: "</think>" * 20_000 + _KEPT,
    "thoughts": lambda: "<think></think>" * 20_000 + _KEPT,
    "thoughts in thoughts": lambda: "<think>" * 20_000 + "</think>" * 20_000 + _KEPT,
    "braces and closing thoughts": lambda: "{</think>" * 20_000 + times("a"),
    "braces around thoughts": lambda: (
        "{<think></think>" * 12_000 + times("a") + "}" * 12_000
    ),
    "beginnings of tags": lambda: times("</thin<think"),
    "tags": lambda: "think" + times("<a>"),
    "names in brackets": lambda: "think" + times("[a_a_a_a_a_a]"),
    "bullets that go on": lambda: "- a\n" + times(" b\n") + _LIT,
    "spaces": lambda: times(" "),
    "spaces before": lambda: times(" ") + _KEPT,
    "spaces after": lambda: _KEPT + times(" ") + "x",
    "a long reason": lambda: big(PRESERVATION, times("seen ")),
    "a long reason without spaces": lambda: big(PRESERVATION, times("影")),
    "a long reason of mixed script": lambda: big(PRESERVATION, times("影a")),
    "a long reason of escapes": lambda: big(PRESERVATION, times("\\u5f71")),
    "a long refusal": lambda: times("I can no"),
    "marked lines": lambda: "## Difference Analysis\n" + times("a: allowed\n") + _LIT,
    "marked lines without a heading": lambda: times("a: allowed\n") + _LIT,
    "colons": lambda: times(":" * 59 + "\n") + _LIT,
    "colons before spaces": lambda: times(":" + " " * 58 + "\n") + _LIT,
    "one line of colons and spaces": lambda: times(": ") + _LIT,
    "one long mark": lambda: "a: not" + times(" ") + "allowed\n" + _LIT,
    "empty lines": lambda: times("\n") + _LIT,
    "hash signs": lambda: times("#") + _LIT,
    "lines of hash signs": lambda: times("#\n") + _LIT,
    "headings": lambda: times("## Difference Analysis\n") + _LIT,
    "other headings": lambda: (
        "## Difference Analysis\n" + times("## CP Decision\n") + _LIT
    ),
    "a heading with a long tail": lambda: "## JSON" + times(" ") + "x\n" + _LIT,
    "a heading with a long gap": lambda: "## Difference" + times(" ") + "x\n" + _LIT,
    "a heading far from its hash": lambda: "##" + times(" ") + "x\n" + _LIT,
    "a heading far from its margin": lambda: times(" \t") + "x\n" + _LIT,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_costs_no_more_than_some_passes_over_it(name: str) -> None:
    text = HOSTILE[name]()
    rubric = LIGHTING if text.endswith(_LIT) else PRESERVATION
    assert effort(lambda: check(rubric, text), scan(SIZE), SCANS) < SCANS


def test_a_hostile_template_costs_no_more_than_some_passes_over_it() -> None:
    template = Template(
        text=times("[input imag"), slots=(Slot("[input image]", "input"),)
    )
    assert (
        effort(lambda: sum(1 for _ in prompt.pieces(template)), scan(SIZE), SCANS)
        < SCANS
    )


def test_a_draft_above_an_empty_json_section_is_no_answer() -> None:
    rubric = load_one("lighting")
    draft = raw(answer(rubric))
    outcome = check(
        rubric, f"## Difference Analysis\nnone\n## CP Decision\n{draft}\n## JSON\n"
    )
    assert isinstance(outcome, Failure) and [
        remark.code for remark in outcome.reasons
    ] == ["no_answer"]


# --- decimals and choices -------------------------------------------------------------------------------------


def share(likeness: str, harm: str) -> Verdict | Failure:
    """A reply with these numbers exactly as they are written."""
    entries = {"likeness": likeness, "harm": harm}
    inner = ", ".join(
        f'"{key}": {{"justification": "Seen.", "score": {text}}}'
        for key, text in entries.items()
    )
    return check(SHARE, f'{{"results": {{{inner}}}}}')


@pytest.mark.parametrize(
    ("likeness", "harm"),
    [("0.25", "0"), ("1", "9.5"), ("0.123456789", "10.0"), ("2.5e-1", "1")],
)
def test_decimals_inside_the_range_and_on_the_step_are_accepted_as_written(
    likeness: str, harm: str
) -> None:
    assert accepted(share(likeness, harm)).scores == {
        "likeness": float(likeness),
        "harm": float(harm),
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1.0001", "score_out_of_scale"),
        ("-0.1", "score_out_of_scale"),
        ("1.00000000000000000000000001", "score_out_of_scale"),
        ('"0.5"', "score_string"),
        ("true", "score_bool"),
        ("null", "score_null"),
        ("1e999", "score_out_of_scale"),
        ("[0.5]", "score_wrong_type"),
    ],
)
def test_what_is_no_number_of_the_range_is_refused(text: str, code: str) -> None:
    assert codes(refused(share(text, "1")).reasons) == [code]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", ".5", "0x1", "1_0"])
def test_what_json_does_not_have_as_a_number_is_refused(text: str) -> None:
    assert codes(refused(share(text, "1")).reasons) == ["not_json"]


@pytest.mark.parametrize("text", ["0.25", "9.51", "0.50000000000000001"])
def test_a_decimal_beside_the_steps_is_refused_and_not_rounded(text: str) -> None:
    assert codes(refused(share("0.5", text)).reasons) == ["score_out_of_scale"]


def test_a_verdict_on_decimals_keeps_integers_as_they_were_written() -> None:
    scores = accepted(share("1", "0.0")).as_json()["scores"]
    assert json.dumps(scores) == '{"likeness": 1, "harm": 0.0}'


def duel(quality: Any, overall: Any = "tie") -> Verdict | Failure:
    choices = {"quality": quality, "overall": overall}
    return check(
        DUEL,
        raw(
            {
                key: {"justification": "Seen.", "choice": choice}
                for key, choice in choices.items()
            }
        ),
    )


def test_choices_stand_apart_and_are_no_scores() -> None:
    verdict = accepted(duel("a"))
    assert (
        verdict.choices == {"quality": "a", "overall": "tie"} and verdict.scores == {}
    )
    assert verdict.as_json()["scores"] is None and verdict.as_json()["choices"] == {
        "quality": "a",
        "overall": "tie",
    }


@pytest.mark.parametrize("choice", ["A", " a", "both", "", 0, 1.5, True, None, ["a"]])
def test_a_choice_that_was_not_offered_to_the_letter_is_refused(choice: Any) -> None:
    failure = refused(duel(choice))
    assert (
        codes(failure.reasons) == ["choice_unknown"]
        and '"a", "b" or "tie"' in failure.reasons[0].message
    )
