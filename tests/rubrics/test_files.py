"""Rubric files: what is right loads, what is wrong is refused with file, line, key and what was expected."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from editjudge.errors import RubricError
from editjudge.rubrics import files
from editjudge.rubrics.contract import check
from editjudge.rubrics.model import (
    Anchor,
    AnswerFormat,
    Consistency,
    Factor,
    Rubric,
    Slot,
    Template,
)
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.verdict import Verdict
from tests.faults import raises

MINIMAL = """\
name: mine
images: [input, edited]
texts: [instruction]
scale:
  values: [1, 2, 3]
  labels: {1: bad, 3: good}
factors:
  - key: unity
    anchors:
      - scores: [3]
        when: [it holds together]
answer:
  envelope: results
"""


def refusal(text: str) -> str:
    with pytest.raises(RubricError) as caught:
        files.parse(text, "mine.yaml")
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert MINIMAL.count(old) == 1
    return MINIMAL.replace(old, new)


# --- by name, by set, by file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", files.names())
def test_every_builtin_loads_and_accepts_its_own_example(name: str) -> None:
    rubric = files.load(name)
    assert rubric.name == name
    outcome = check(rubric, rubric.example)
    assert isinstance(outcome, Verdict) and not outcome.violations


def test_the_folder_and_the_list_name_the_same_builtins() -> None:
    assert {path.stem for path in files.BUILTIN.glob("*.yaml")} == {
        *files.names(),
        *files.PAIRWISE,
        files.LOOK,
        *files.COMPUTED,
    }


def test_a_users_file_works_wherever_a_name_does(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL)
    rubric = files.load(str(path))
    assert files.load_one(str(path)) == rubric
    assert files.resolve(["lighting", str(path)]) == [files.load("lighting"), rubric]


def test_a_file_needs_no_yaml_ending(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text(MINIMAL)
    assert files.load(str(path)).name == "mine"


def test_a_builtin_name_wins_over_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quality").write_text(MINIMAL)
    assert files.load("quality").name == "quality"


def test_the_sets_are_online_and_offline() -> None:
    assert [rubric.name for rubric in files.resolve(["online"])] == [
        "preservation",
        "quality",
        "fidelity",
    ]
    assert [rubric.name for rubric in files.resolve(["offline"])] == ["reference"]


def test_a_rubric_that_is_named_twice_is_asked_once() -> None:
    names = [rubric.name for rubric in files.resolve(["quality", "online", "quality"])]
    assert names == ["quality", "preservation", "fidelity"]


def test_two_different_rubrics_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(changed("name: mine", "name: quality"))
    with raises(RubricError, "two_of_one_name", "quality"):
        files.resolve(["quality", str(path)])


def test_an_unknown_name_gets_the_nearest_one_and_the_list() -> None:
    with raises(
        RubricError, "unknown_rubric", "qualty", '"quality"', "online"
    ) as caught:
        files.load("qualty")
    assert all(
        name in str(caught.value)
        for name in [*files.names(), *files.SETS, *files.PAIRWISE, *files.COMPUTED]
    )


def test_a_set_where_one_rubric_is_wanted_is_called_a_set() -> None:
    with raises(RubricError, "is_a_set", "online"):
        files.load("online")


@pytest.mark.parametrize(
    "word",
    ["", "x" * 5000, "\0", "a\0.yaml", "x" * 5000 + ".yaml", "/", ".", "nowhere.yaml"],
)
def test_what_is_neither_name_nor_file_is_refused_whatever_it_is(word: str) -> None:
    with pytest.raises(RubricError) as caught:
        files.load(word)
    assert str(caught.value).isprintable()


# --- what is wrong is refused, and where ----------------------------------------------------------------------

MISSPELT = {
    "at the top": (
        "images:",
        "imges:",
        'mine.yaml:2: imges: unknown key "imges"; did you mean "images"?',
    ),
    "in a factor": (
        "    anchors:",
        "    anchor:",
        'mine.yaml:9: factors.0.anchor: unknown key "anchor"; did you mean "anchors"?',
    ),
    "in an anchor": (
        "        when:",
        "        wen:",
        'mine.yaml:11: factors.0.anchors.0.wen: unknown key "wen"; did you mean "when"?',
    ),
    "in the scale": (
        "  labels:",
        "  label:",
        'mine.yaml:6: scale.label: unknown key "label"; did you mean "labels"?',
    ),
    "in the answer": (
        "  envelope:",
        "  envelop:",
        'mine.yaml:13: answer.envelop: unknown key "envelop"; did you mean "envelope"?',
    ),
    "in the consistency": (
        "answer:",
        "consistency: {sektion: S, passes: [], fails: [], factor: unity, pass_score: 1, fail_score: 3}\nanswer:",
        'mine.yaml:12: consistency.sektion: unknown key "sektion"; did you mean "section"?',
    ),
    "in the template": (
        "answer:",
        "template:\n  text: t\n  slot: []\nanswer:",
        'mine.yaml:14: template.slot: unknown key "slot"; did you mean "slots"?',
    ),
    "in a slot": (
        "answer:",
        "template:\n  text: t\n  slots:\n  - mark: t\n    rol: edited\nanswer:",
        'mine.yaml:16: template.slots.0.rol: unknown key "rol"; did you mean "role"?',
    ),
}


@pytest.mark.parametrize("place", MISSPELT)
def test_a_misspelt_key_is_named_with_line_place_and_suggestion(place: str) -> None:
    old, new, expected = MISSPELT[place]
    message = refusal(changed(old, new))
    assert expected in message
    assert "Expected: " in message


WRONG = {
    "a string for a list": ("[input, edited]", "input", "mine.yaml:2: images: Input should be a valid array"),
    "an unknown picture": (
        "[input, edited]",
        "[input, edite]",
        'mine.yaml:2: images: images list "edite"; '
        'did you mean "edited"?',
    ),
    "no pictures": ("[input, edited]", "[]", "mine.yaml:2: images: a rubric needs at least one image"),
    "a number for a name": ("name: mine", "name: 7", "mine.yaml:1: name: Input should be a valid string, found 7"),
    "nothing for a name": ("name: mine", "name:", "mine.yaml:1: name: Input should be a valid string, found None"),
    "a decimal score": ("[1, 2, 3]", "[1, 2.0, 3]", "mine.yaml:5: scale.values.1: Input should be a valid integer"),
    "a quoted score": ("[1, 2, 3]", '[1, "2", 3]', "mine.yaml:5: scale.values.1: Input should be a valid integer"),
    "a yes for a score": ("[1, 2, 3]", "[1, 2, yes]", "mine.yaml:5: scale.values.2: Input should be a valid integer"),
    "a true for a score": ("[1, 2, 3]", "[1, 2, true]", "mine.yaml:5: scale.values.2: Input should be a valid integer"),
    "an endless score": ("[1, 2, 3]", f"[1, {'9' * 5000}]", "mine.yaml:5: scale.values.1: Input should be"),
    "one score": ("[1, 2, 3]", "[3]", "mine.yaml:5: scale.values: a scale needs at least two values"),
    "a score twice": ("[1, 2, 3]", "[1, 3, 3]", "mine.yaml:5: scale.values: a scale names each value once"),
    "a label off the scale": ("{1: bad, 3: good}", "{1: bad, 9: good}", "mine.yaml:6: scale.labels: labels for [9]"),
    "a label for a word": ("{1: bad, 3: good}", "{low: bad}", "mine.yaml:6: scale.labels.low.[key]: Input should be"),
    "two spellings of a label": ("{1: bad, 3: good}", '{1: bad, "01": worse}', 'mine.yaml:6: the key "01" is not a'),
    "a list for a scale": (
        "  values: [1, 2, 3]\n  labels: {1: bad, 3: good}",
        "  - 1\n  - 2",
        "mine.yaml:4: scale: Input should be an object",
    ),
    "an anchor off the scale": ("[3]\n", "[4]\n", "mine.yaml:9: factors.0.anchors: anchors for [4]"),
    "a factor of no scale": (
        "scale:\n  values: [1, 2, 3]\n  labels: {1: bad, 3: good}\n",
        "",
        "mine.yaml:5: factors.0.scale: missing: give the rubric or this factor a scale",
    ),
    "two factors of one key": (
        "  - key: unity\n",
        "  - key: unity\n  - key: unity\n",
        "mine.yaml:7: factors: factor keys must differ",
    ),
    "no factors": (
        "factors:\n  - key: unity\n    anchors:\n      - scores: [3]\n        when: [it holds together]\n",
        "factors: []\n",
        "mine.yaml:7: factors: a rubric needs at least one factor",
    ),
    "a word for the factors": (
        "factors:\n  - key: unity\n    anchors:\n      - scores: [3]\n        when: [it holds together]\n",
        "factors: unity\n",
        "mine.yaml:7: factors: Input should be a valid array, found 'unity'",
    ),
    "no answer": ("answer:\n  envelope: results\n", "", "mine.yaml:1: answer: missing"),
    "words the wrong way round": (
        "envelope: results",
        "words: [30, 15]",
        "mine.yaml:13: answer.words: words [30, 15]: ",
    ),
    "words in words": (
        "envelope: results",
        "words: 15-30",
        "mine.yaml:13: answer.words: Input should be a valid array, found '15-30'",
    ),
    "an unknown form": ("envelope: results", "form: lists", 'mine.yaml:13: answer.form: Input should be'),
    "a list without envelope": ("envelope: results", "form: list", "mine.yaml:12: answer: form list: expected an envelope"),
    "a rule for no factor": (
        "answer:",
        "consistency: {section: S, passes: [], fails: [], factor: x, pass_score: 1, fail_score: 3}\nanswer:",
        "mine.yaml:12: consistency: consistency names the factor 'x'",
    ),
    "braces that str.format cannot read": (
        "answer:",
        "template:\n  braces: format\n  text: 'a { b'\nanswer:",
        "mine.yaml:14: template.text: expected '}' before end of string",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_value_is_named_with_line_place_and_what_was_expected(
    fault: str,
) -> None:
    old, new, expected = WRONG[fault]
    assert expected in refusal(changed(old, new))


def test_one_fault_in_a_shared_scale_is_one_complaint_however_many_factors_share_it() -> (
    None
):
    text = changed(
        "  - key: unity\n", "  - key: a\n  - key: b\n  - key: unity\n"
    ).replace("[1, 2, 3]", "[1]")
    assert refusal(text).count("\n") == 0


def test_a_fault_in_a_factors_own_scale_is_told_at_the_factor() -> None:
    text = changed(
        "  - key: unity\n", "  - key: sharp\n    scale: {values: [0]}\n  - key: unity\n"
    )
    assert refusal(text).startswith("mine.yaml:9: factors.0.scale.values: ")


def test_every_fault_is_told_at_once_up_to_a_limit() -> None:
    text = changed("name: mine", "nam: mine").replace("images:", "image:")
    assert [line.split(": ")[0] for line in refusal(text).splitlines()].count(
        "mine.yaml:1"
    ) >= 2
    many = MINIMAL + "".join(f"key{number}: 1\n" for number in range(5000))
    assert len(refusal(many).splitlines()) < 50


NOT_A_RUBRIC = {
    "a key twice": (
        MINIMAL + "name: other\n",
        'mine.yaml:14: the key "name" ',
    ),
    "a key twice, deep": (
        changed("  envelope: results", "  words: [1, 2]\n  words: [1, 2]"),
        "mine.yaml:14: the key",
    ),
    "an alias": (MINIMAL + "role: &r x\ntask: *r\n", "mine.yaml:15: aliases"),
    "a merge": (changed("answer:\n", "answer:\n  <<: *a\n"), "mine.yaml:13: aliases"),
    "a bomb of aliases": ("a: &a [x, x]\nb: &b [*a, *a]\n", "mine.yaml:2: aliases"),
    "two documents": (
        MINIMAL + "---\n" + MINIMAL,
        "mine.yaml:14: more than one document",
    ),
    "two documents, the first empty": (
        "---\n---\n" + MINIMAL,
        "mine.yaml:2: more than one document",
    ),
    "a tag": (
        changed("name: mine", "name: !!python/name:os.system x"),
        "mine.yaml:1: tags",
    ),
    "a tag on a list": (
        changed("[input, edited]", "!!set [input, edited]"),
        "mine.yaml:2: tags",
    ),
    "a tab for indentation": (changed("  - key", "\t- key"), "mine.yaml:8: not YAML"),
    "broken flow": ("name: [a\n", "not YAML"),
    "a control character": (
        changed("name: mine", "name: mi\x07ne"),
        "mine.yaml:1: not YAML",
    ),
    "half a surrogate pair": (
        changed("name: mine", 'name: "\\ud83d"'),
        "mine.yaml:1: not YAML",
    ),
    "a list for a key": (
        MINIMAL + "? [a, b]\n: c\n",
        "mine.yaml:14: a key must be a word",
    ),
    "a list": (
        "- name\n- images\n",
        "mine.yaml:1: expected keys such as name, images, factors and answer",
    ),
    "a word": ("preservation", "mine.yaml:1: expected keys"),
    "nothing": ("", "mine.yaml:1: expected keys"),
    "only a comment": ("# soon\n", "mine.yaml:1: expected keys"),
}


@pytest.mark.parametrize("fault", NOT_A_RUBRIC)
def test_what_is_no_rubric_file_is_refused_with_its_line(fault: str) -> None:
    text, expected = NOT_A_RUBRIC[fault]
    assert expected in refusal(text)


def test_escape_sequences_of_a_file_do_not_reach_the_message() -> None:
    for text in (
        MINIMAL + '"\\e[31m": 1\n',
        MINIMAL + '"\\e[31m": 1\n"\\e[31m": 2\n',
        changed("name", '"na\u202eme"'),
    ):
        assert refusal(text).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("content", "code", "named"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not_utf8", "byte 0"),
        (MINIMAL.encode("utf-16"), "not_utf8", "byte 0"),
        (b"name: caf\xe9", "not_utf8", "byte 9"),
        (b"# " + b"x" * 2_000_000, "too_many_bytes", "1,000,000"),
    ],
    ids=["a picture", "UTF-16", "Latin-1", "two megabytes"],
)
def test_a_file_that_cannot_be_a_rubric_is_refused_by_its_name(
    tmp_path: Path, content: bytes, code: str, named: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with raises(RubricError, code, path, named):
        files.load(str(path))


def test_a_folder_and_a_missing_file_are_refused_by_their_name(tmp_path: Path) -> None:
    missing = tmp_path / "x.yaml"
    for path, code in ((missing, "unreadable_file"), (tmp_path, "unknown_rubric")):
        with raises(RubricError, code, path):
            files.load(str(path))


DEEP = {
    "flow lists": "[" * 100_000,
    "closed flow lists": "[" * 100_000 + "]" * 100_000,
    "flow mappings": "{a: " * 100_000,
    "block lists": "- " * 100_000,
    "block mappings": "\n".join(" " * depth + "a:" for depth in range(1200)),
    "lists of lists below a key": "name: mine\nimages:\n" + "  - " + "- " * 100_000,
    "keys of keys": "? " * 100_000,
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_nesting_is_refused(kind: str) -> None:
    text = refusal(DEEP[kind])
    assert "deep" in text or "key" in text


def test_deep_nesting_does_not_end_the_process(tmp_path: Path) -> None:
    paths = []
    for kind, text in DEEP.items():
        paths.append(tmp_path / f"{kind}.yaml")
        paths[-1].write_text(text)
    program = (
        "import sys\nfrom editjudge.errors import RubricError\nfrom editjudge.rubrics import files\n"
        "for path in sys.argv[1:]:\n    try:\n        files.load(path)\n"
        "    except RubricError:\n        print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["refused"] * len(DEEP))


# --- plain words mean what they say ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    ["no", "yes", "on", "off", "NO", "1.0", "1e5", "0x1f", "2024-01-01", "12:30", "01"],
)
def test_an_unquoted_word_is_text_and_not_a_surprise(word: str) -> None:
    assert files.parse(changed("name: mine", f"name: {word}")).name == word


def test_integers_may_carry_a_sign() -> None:
    text = changed("[1, 2, 3]", "[-1, 0, +3]").replace(
        "labels: {1: bad, 3: good}", "labels: {-1: bad}"
    )
    assert files.parse(text).factors[0].scale == Scale((-1, 0, 3), {-1: "bad"})


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_byte_order_mark_and_carriage_returns_are_nothing(
    tmp_path: Path, newline: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", newline).encode())
    assert files.load(str(path)) == files.parse(MINIMAL)


def test_a_factor_may_have_a_scale_of_its_own() -> None:
    rubric = files.parse(
        changed(
            "  - key: unity\n",
            "  - key: sharp\n    scale: {values: [0, 1]}\n  - key: unity\n",
        )
    )
    assert [factor.scale.values for factor in rubric.factors] == [(0, 1), (1, 2, 3)]


# --- identity -------------------------------------------------------------------------------------------------


def shuffled(value: Any, order: random.Random) -> Any:
    """The same data with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {key: shuffled(value[key], order) for key in keys}
    return (
        [shuffled(item, order) for item in value] if isinstance(value, list) else value
    )


@pytest.mark.parametrize("name", files.names())
def test_the_hash_is_of_content_and_not_of_how_the_file_is_written(name: str) -> None:
    text = (files.BUILTIN / f"{name}.yaml").read_text("utf-8")
    rubric = files.load(name)
    data = yaml.safe_load(text)
    rewritten = {**data, "name": "other", "description": "Other words.", "example": ""}
    for seed in range(3):
        order = random.Random(seed)
        again = "# Another comment.\n" + yaml.safe_dump(
            shuffled(rewritten, order), sort_keys=False
        )
        assert files.parse(again).hash == rubric.hash


@pytest.mark.parametrize("name", files.names())
def test_any_word_that_a_judge_reads_changes_the_hash(name: str) -> None:
    rubric = files.load(name)
    for field in (
        "role",
        "task",
        "scope",
        "allowed",
        "forbidden",
        "ignored",
        "steps",
        "constraints",
    ):
        value = getattr(rubric, field)
        change: dict[str, Any] = {
            field: value + "!" if isinstance(value, str) else (*value, "!")
        }
        assert dataclasses.replace(rubric, **change).hash != rubric.hash


# --- there and back again -------------------------------------------------------------------------------------

NASTY = [
    "", " ", " a", "a ", "\ta", "a\t", "a\tb\n", "#", "a # b", "a #b\n", ": ", "a: b", "a:\nb", "'", '"',
    "'\"'", "''\n", "a\r\nb\r\n", "a\rb", "\r", "a\n", "a\n\n", "\n", "\n\n\n", "\na", "\n a", " \n a",
    "  a\n b", "a\n  \nb", "a \nb", "a\n\tb", "a\u2028b", "a\u2029b\n", "\u2028", "a\x85b", "a\n\x85b", "\x85",
    "\ufeff", "a\ufeffb\n", "\xa0", "\xa0a\n", "\u3000", "\u200b", "\u202e", "\u2066a\u2069", "\xad", "😀",
    "a\n😀\n", "e\u0301", "\x00", "\x07\n", "\x1b[31m", "\x7f", "\x9b\n", "\ufffe", "\uffff", "\U0010ffff", "no",
    "yes", "true", "null", "~", "1", "-1", "1.0", "01", "0x1f", "2024-01-01", "- a", "-", "--- a\n", "...",
    "? a", "| a", "> a\n", "%a", "@a", "`a", "&a", "*a", "!a", "{a}", "[a", "{{a}}", "<<", "=", ",", "a, b",
    "\\", "\\n", '\\"', "%YAML 1.1\n", "word " * 60, "word " * 60 + "\nw" * 90, "x" * 300,
]  # fmt: skip

nasty = st.sampled_from(NASTY)
texts = st.one_of(
    nasty,
    st.text(max_size=40),
    st.lists(nasty, min_size=2, max_size=4).map("".join),
    st.lists(st.text(max_size=12), min_size=2, max_size=5).map("\n".join),
)
lists = st.lists(texts, max_size=3).map(tuple)


@st.composite
def scales(draw: st.DrawFn) -> Scale:
    values = draw(st.lists(st.integers(-999, 999), min_size=2, max_size=6, unique=True))
    return Scale(
        tuple(values), draw(st.dictionaries(st.sampled_from(values), texts, max_size=3))
    )


@st.composite
def factors(draw: st.DrawFn, scale: Scale | None = None) -> Factor:
    own = scale or draw(scales())
    anchor = st.builds(
        Anchor,
        st.lists(st.sampled_from(own.values), min_size=1, max_size=2).map(tuple),
        lists,
    )
    anchors = draw(st.lists(anchor, max_size=2).map(tuple))
    return Factor(
        draw(texts),
        own,
        draw(texts),
        draw(texts),
        draw(lists),
        draw(lists),
        draw(texts),
        anchors,
    )


answers = st.builds(
    AnswerFormat,
    id_key=st.none() | texts,
    envelope=texts.filter(bool),
    form=st.sampled_from(["entries", "scores", "list"]),
    score_key=texts,
    reason_key=texts,
    texts=lists,
    words=st.none() | st.tuples(st.integers(0, 20), st.integers(20, 99)),
    reason=texts,
    sections=lists,
)
templates = st.builds(
    Template,
    text=texts,
    slots=st.lists(
        st.builds(
            Slot, texts, st.sampled_from(["input", "instruction"]), st.booleans()
        ),
        max_size=2,
    ).map(tuple),
    adds_answer_format=st.booleans(),
)

Image = Literal["input", "edited", "ground_truth"]


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    shared = draw(st.none() | scales())
    made = draw(
        st.lists(
            factors(shared), min_size=1, max_size=3, unique_by=lambda factor: factor.key
        )
    )
    images: list[Image] = draw(
        st.lists(st.sampled_from(get_args(Image)), min_size=1, max_size=3, unique=True)
    )
    ruled = draw(st.sampled_from(made))
    score = st.sampled_from(ruled.scale.values)
    rule = st.builds(Consistency, texts, lists, lists, st.just(ruled.key), score, score)
    answer = draw(answers)
    beside = [
        answer.id_key,
        *answer.texts,
        *([answer.envelope] if answer.envelope else [one.key for one in made]),
    ]
    assume(len(set(beside)) == len(beside))
    return Rubric(
        name=draw(texts),
        images=tuple(images),
        factors=tuple(made),
        answer=answer,
        texts=draw(
            st.sampled_from(
                [(), ("instruction",), ("instruction", "referring_expression")]
            )
        ),
        description=draw(texts),
        role=draw(texts),
        task=draw(texts),
        scope=draw(lists),
        allowed=draw(lists),
        forbidden=draw(lists),
        ignored=draw(lists),
        steps=draw(lists),
        constraints=draw(lists),
        consistency=draw(st.none() | rule),
        example=draw(texts),
        template=draw(st.none() | templates),
    )


@settings(max_examples=60, deadline=None)
@given(rubric=rubrics())
def test_a_rubric_that_is_written_and_read_is_the_same_rubric(rubric: Rubric) -> None:
    again = files.parse(files.dump(rubric))
    assert again == rubric
    assert again.hash == rubric.hash


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_no_text_is_changed_by_a_file(tmp_path: Path, text: str) -> None:
    factor = Factor(
        "a", Scale((1, 2), {1: text}), definition=text, examine=(text, "x", text)
    )
    rubric = Rubric(
        "a",
        ("edited",),
        (factor,),
        AnswerFormat(),
        role=text,
        template=Template(f"{text}|", (Slot("|", "edited"),)),
    )
    path = tmp_path / "mine.yaml"
    path.write_text(files.dump(rubric), "utf-8", newline="")
    assert files.load(str(path)) == rubric


def test_half_a_surrogate_pair_is_refused_and_not_changed() -> None:
    with raises(RubricError, "not_text"):
        files.dump(dataclasses.replace(files.parse(MINIMAL), role="a\ud83db"))


@pytest.mark.parametrize("name", [*files.names(), "online"])
def test_a_builtin_survives_being_written(name: str) -> None:
    rubric = files.load_one(name)
    assert files.parse(files.dump(rubric)) == rubric


def test_a_written_file_says_only_what_is_its_own() -> None:
    assert yaml.safe_load(files.dump(files.parse(MINIMAL))) == yaml.safe_load(MINIMAL)


DECIMALS = """
name: mine
images: [input, edited]
factors:
  - key: likeness
    scale: {range: [0, 1.0], step: 0.05}
    anchors: [{scores: [0.5], when: [half of it]}]
  - key: distance
    scale: {range: [0, null], direction: down}
  - key: steps
    scale: {values: [0, 1, 2], direction: down}
answer: {envelope: results}
"""


def test_a_file_may_have_decimals_with_a_range_a_step_and_a_direction() -> None:
    rubric = files.parse(DECIMALS)
    assert [factor.scale for factor in rubric.factors] == [
        Scale(range=(0, 1), step=0.05),
        Scale(range=(0, None), direction="down"),
        Scale((0, 1, 2), direction="down"),
    ]
    assert rubric.contract()["factors"] == [
        {"key": "likeness", "range": [0, 1], "step": 0.05, "direction": "up"},
        {"key": "distance", "range": [0, None], "step": None, "direction": "down"},
        {"key": "steps", "values": [0, 1, 2], "direction": "down"},
    ]
    assert files.parse(files.dump(rubric)) == rubric


def test_a_file_may_have_choices() -> None:
    text = "name: d\nimages: [edited]\nscale: {choices: [a, b, tie]}\nfactors: [{key: best}]\nanswer: {}\n"
    rubric = files.parse(text)
    assert rubric.contract()["factors"] == [
        {"key": "best", "choices": ["a", "b", "tie"]}
    ]
    assert files.parse(files.dump(rubric)) == rubric


@pytest.mark.parametrize(
    ("scale", "complaint"),
    [
        ("{range: [0, 1], values: [1, 2]}", "either values"),
        ("{range: [0]}", "scale.range"),
        ("{range: [0, high]}", "scale.range.1"),
        ("{range: [0, 1], direction: sideways}", "'up' or 'down'"),
        ("{range: [0, 1], step: 0.3}", "do not end at 1"),
        ("{range: [0, 1], rnage: 2}", "rnage"),
    ],
)
def test_a_decimal_scale_that_does_not_hold_is_refused_with_its_line(
    scale: str, complaint: str
) -> None:
    text = f"name: d\nimages: [edited]\nscale: {scale}\nfactors: [{{key: best}}]\nanswer: {{}}\n"
    with pytest.raises(RubricError, match=r"rubric:3: ") as raised:
        files.parse(text)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    "path", sorted(files.BUILTIN.glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_built_in_rubric_is_the_same_with_and_without_the_check(path: Path) -> None:
    checked = files.parse(path.read_text("utf-8"), str(path))
    loaded = files.load(path.stem)
    assert loaded == checked
    assert loaded.content() == checked.content()
    assert loaded.hash == checked.hash
