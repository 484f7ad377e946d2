"""`editjudge rubric`: list, show, check and import, as people and programs call them."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from editjudge import cli
from editjudge.cli.rubric import MAX_PROMPT
from editjudge.rubrics import files
from editjudge.rubrics.model import LAYOUTS
from tests.faults import shows

from .stores import Call, call

__all__ = ["call"]

PROMPTS = Path(__file__).parents[3] / "shared" / "prompts"
CONTRACT = [
    "name",
    "hash",
    "images",
    "texts",
    "factors",
    "envelope",
    "justification_words",
    "sections",
]

MINE = """\
name: mine
images: [input, edited]
texts: [instruction]
scale: {values: [1, 2, 3]}
factors:
  - key: unity
    definition: Whether it is one.
    anchors: [{scores: [3], when: [it is]}]
answer: {envelope: results}
"""

PROMPT = """\
Before: [input image]
After: [edited image]
Request: {instruction}
Reply {"score": <1-5>, "reason": "<at most 20 words>"}
"""


@pytest.fixture
def rubric(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)
    return functools.partial(call, "rubric")


def written(text: str, name: str = "mine.yaml") -> Path:
    path = Path(name)
    path.write_bytes(text.encode())
    return path


def clean(text: str) -> bool:
    """Nothing that a terminal would obey."""
    return text.replace("\n", "").replace("\t", "").isprintable()


# --- list -----------------------------------------------------------------------------------------------------


def test_list_names_every_rubric_and_set(rubric: Call) -> None:
    done = rubric("list")
    assert done.code == 0 and not done.err
    starts = [
        line.split()[0] for line in done.out.splitlines() if not line.startswith(" ")
    ]
    single = [*files.names(), *files.PAIRWISE, files.LOOK, *files.COMPUTED]
    assert starts == [*single, *files.SETS, files.LOOKED]


def test_list_as_json_has_each_contract_and_the_sets(rubric: Call) -> None:
    document = rubric("list", "--json").document
    assert document["sets"] == {
        "online": ["preservation", "quality", "fidelity"],
        "offline": ["reference"],
        "online-looked": ["differences", "preservation", "quality", "fidelity"],
    }
    assert [one["name"] for one in document["rubrics"]] == [
        *files.names(),
        *files.PAIRWISE,
        files.LOOK,
        *files.COMPUTED,
    ]
    for one in document["rubrics"]:
        assert one == {
            **files.load(one["name"]).contract(),
            "description": files.load(one["name"]).description,
        }


# --- show -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*files.names(), *files.SETS])
def test_show_as_json_answers_the_contract_with_exactly_its_keys(
    rubric: Call, name: str
) -> None:
    done = rubric("show", name, "--json")
    assert (done.code, done.err) == (0, "")
    document = done.document
    assert list(document) == [
        *CONTRACT,
        *(("members", "scores") if name in files.SETS else ()),
    ]
    assert {key: document[key] for key in CONTRACT} == files.load_one(name).contract()
    assert document["name"] == name
    assert set(document["images"]) <= {"input", "edited", "ground_truth"}
    assert all(set(factor) == {"key", "values"} for factor in document["factors"])


def test_show_of_a_set_means_the_fused_contract(rubric: Call) -> None:
    document = rubric("show", "online", "--json").document
    assert (
        len(document["factors"]) == 12
        and document["envelope"] == "online_factor_results"
    )


def test_show_of_lighting_has_no_texts_and_the_sections_in_order(rubric: Call) -> None:
    document = rubric("show", "lighting", "--json").document
    assert (
        document["texts"] == []
        and document["justification_words"] is None
        and document["envelope"] == ""
    )
    assert document["sections"] == ["Difference Analysis", "CP Decision", "JSON"]


def test_show_tells_people_the_same(rubric: Call) -> None:
    done = rubric("show", "preservation")
    assert done.code == 0
    for words in (
        "online_factor_results",
        "15 to 30 words",
        "unchanged_regions: an integer from 1 to 7",
        "input, edited",
    ):
        assert words in done.out
    assert json.loads(done.out[done.out.index("{") :])["additionalProperties"] is False


def test_show_takes_a_users_file_wherever_a_name_goes(rubric: Call) -> None:
    path = written(MINE)
    assert rubric("show", path, "--json").document == files.load(str(path)).contract()
    assert shows(rubric("show", path).out, "unity", "1 to 3")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [*files.names(), "online"])
def test_show_prints_the_question_in_either_layout(
    rubric: Call, name: str, layout: str
) -> None:
    done = rubric("show", name, "--prompt", "--layout", layout)
    assert done.code == 0
    images = files.load_one(name).images
    places = [done.out.index(f"[image: {role}]") for role in images]
    assert places == sorted(places)
    assert (done.out.index("# Your role") > places[-1]) == (layout == "images-first")


def test_the_question_as_json_has_its_parts_in_order(rubric: Call) -> None:
    document = rubric("show", "fidelity", "--prompt", "--json").document
    assert list(document) == ["identifier", "layout", "parts"]
    assert document["layout"] == "images-first"
    kinds = [next(iter(part)) for part in document["parts"]]
    assert kinds == ["text", "image", "text", "image", "text"]
    assert [part["image"] for part in document["parts"] if "image" in part] == [
        "input",
        "edited",
    ]
    assert document["identifier"] in document["parts"][-1]["text"]


def test_an_unknown_layout_is_a_usage_error_with_those_there_are(rubric: Call) -> None:
    done = rubric("show", "fidelity", "--prompt", "--layout", "publishd")
    assert done.code == 2 and not done.out
    assert shows(done.err, "'publishd'", "'images-first', 'published'")


@pytest.mark.parametrize("verb", ["show", "check"])
def test_an_unknown_name_is_one_message_with_a_suggestion(
    rubric: Call, verb: str
) -> None:
    done = rubric(verb, "fidelty")
    assert done.code == 2 and not done.out
    assert done.err.startswith(
        'editjudge: no rubric is called "fidelty"; did you mean "fidelity"?'
    )
    assert done.err.count("\n") == 1


def test_an_unknown_verb_is_a_usage_error(rubric: Call) -> None:
    done = rubric("shwo", "fidelity")
    assert done.code == 2 and "shwo" in done.err and not done.out


def test_a_wrong_file_is_one_message_with_its_line(rubric: Call) -> None:
    path = written(MINE.replace("images:", "imges:"))
    done = rubric("show", path)
    assert done.code == 1 and not done.out
    assert f'{path}:2: imges: unknown key "imges"; did you mean "images"?' in done.err
    assert "Traceback" not in done.err


# --- check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*files.names(), *files.SETS])
def test_check_finds_nothing_in_the_builtins(rubric: Call, name: str) -> None:
    done = rubric("check", name)
    assert (done.code, done.out, done.err) == (0, "nothing found\n", "")
    assert rubric("check", name, "--json").document == {"findings": []}


def test_check_says_what_it_finds_and_where_and_exits_with_1(rubric: Call) -> None:
    path = written(MINE + "task: Score {x} from 1 to 9.\n")
    done = rubric("check", path)
    assert done.code == 1
    assert done.out.splitlines() == [
        f"{path}: mine: task: scale_contradicts: the text says 1 to 9, the scale is an integer from 1 to 3",
        f"{path}: mine: task: unfilled_placeholder: no input fills {{x}}",
        "2 findings",
    ]
    found = rubric("check", path, "--json")
    assert found.code == 1
    assert [list(one) for one in found.document["findings"]] == [
        ["rubric", "code", "where", "message"]
    ] * 2


TWINS = """name: twins
rubrics:
  - name: left
    images: [edited]
    scale: {values: [1, 2, 3]}
    factors: [{key: fit}]
    answer: {form: scores}
    template: {text: "Score {x} from 1 to 5. Again: score {x} from 1 to 5."}
  - name: right
    images: [edited]
    scale: {values: [1, 2, 3]}
    factors: [{key: fit}]
    answer: {form: scores}
    template: {text: "Score it from 1 to 5."}
"""


def test_check_says_each_finding_once_and_of_which_rubric_of_a_set(
    rubric: Call,
) -> None:
    findings = rubric("check", written(TWINS), "--json").document["findings"]
    assert [(one["rubric"], one["code"]) for one in findings] == [
        ("left", "scale_contradicts"),
        ("left", "unfilled_placeholder"),
        ("right", "scale_contradicts"),
    ]


# --- import ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    not PROMPTS.is_dir(), reason="the published prompts are not beside the repository"
)
@pytest.mark.parametrize(
    "name", ["preservation", "fidelity", "reference", "lighting", "compliance"]
)
def test_a_given_prompt_is_imported_into_a_file_that_shows_its_siblings_contract(
    rubric: Call, name: str
) -> None:
    done = rubric("import", PROMPTS / f"{name}.txt", "-o", "out.yaml")
    assert done.code == 0 and not done.out
    assert all(line.startswith("inferred ") for line in done.err.splitlines())
    mine, theirs = (
        rubric("show", word, "--json").document for word in ("out.yaml", name)
    )
    assert {**mine, "name": "", "hash": ""} == {**theirs, "name": "", "hash": ""}
    assert rubric("check", "out.yaml").code == 0


def test_import_without_a_file_writes_the_rubric_to_standard_output(
    rubric: Call,
) -> None:
    done = rubric("import", written(PROMPT, "theirs.txt"))
    assert done.code == 0
    imported = files.parse(done.out)
    assert (
        imported.name == "theirs"
        and imported.template
        and imported.template.text == PROMPT
    )
    assert imported.answer.words == (1, 20)


def test_import_keeps_carriage_returns_and_sets_a_byte_order_mark_aside(
    rubric: Call,
) -> None:
    text = PROMPT.replace("\n", "\r\n")
    path = written("\ufeff" + text, "theirs.txt")
    assert rubric("import", path, "-o", "out.yaml").code == 0
    imported = files.load("out.yaml")
    assert imported.template and imported.template.text == text
    shown = rubric("show", "out.yaml", "--prompt", "--layout", "published").out
    assert clean(shown) and "\\x0d" not in shown


def test_import_reads_standard_input(rubric: Call) -> None:
    done = rubric("import", "-", stdin=PROMPT.encode())
    assert done.code == 0 and files.parse(done.out).name == "prompt"


def test_import_takes_another_name(rubric: Call) -> None:
    done = rubric("import", written(PROMPT, "theirs.txt"), "--name", "ours")
    assert files.parse(done.out).name == "ours"


def test_import_as_json_answers_contract_inferences_and_questions(rubric: Call) -> None:
    done = rubric("import", written(PROMPT, "theirs.txt"), "--json")
    assert done.code == 0
    assert list(done.document) == ["contract", "inferred", "asks"]
    assert list(done.document["contract"]) == CONTRACT and done.document["asks"] == []
    done = rubric("import", written("Judge it.", "theirs.txt"), "--json")
    assert done.code == 1 and done.document["contract"] is None
    assert [list(one) for one in done.document["asks"]] == [
        ["about", "why", "option"]
    ] * 3


def test_what_is_needed_is_asked_for_and_nothing_is_written(rubric: Call) -> None:
    text = "Judge {what} in 10 to 20 words, from 1 to 5 or so."
    done = rubric("import", written(text, "theirs.txt"), "-o", "out.yaml")
    assert done.code == 1 and not done.out and not Path("out.yaml").exists()
    needed = [line for line in done.err.splitlines() if line.startswith("needed ")]
    assert [line.split()[1] for line in needed] == [
        "placeholder",
        "images:",
        "factors:",
        "scale:",
    ]
    for option in ("--slot", "--image", "--factor", "--scale"):
        assert option in done.err
    assert "nothing was written" in done.err


COMPLETE: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "placeholders, pictures, factors and a scale": (
        "Judge {what}.",
        [
            "--slot",
            "what=instruction",
            "--image",
            "edited",
            "--factor",
            "a",
            "--factor",
            "b",
            "--scale",
            "1-3",
        ],
        {
            "images": ["edited"],
            "texts": ["instruction"],
            "factors": [
                {"key": "a", "values": [1, 2, 3]},
                {"key": "b", "values": [1, 2, 3]},
            ],
        },
    ),
    "a scale of its own": (
        PROMPT.replace('"score": <1-5>', '"a": 1, "b": 1'),
        ["--scale", "5,3,1", "--scale", "b=0-2"],
        {
            "factors": [
                {"key": "a", "values": [5, 3, 1]},
                {"key": "b", "values": [0, 1, 2]},
            ]
        },
    ),
    "a scale with a word to abstain": (
        PROMPT + "Or N/A.",
        ["--scale", "1-3 or N/A"],
        {"factors": [{"key": "score", "values": [1, 2, 3], "abstain": ["N/A"]}]},
    ),
    "texts": (
        PROMPT.replace("{instruction}", "the instruction"),
        ["--text", "instruction", "--text", "referring_expression"],
        {"texts": ["instruction", "referring_expression"]},
    ),
    "no texts": (
        PROMPT.replace("{instruction}", "the instruction"),
        ["--text", "none"],
        {"texts": []},
    ),
    "words": (
        PROMPT + "Or 30-40 words.",
        ["--words", "30-40"],
        {"justification_words": [30, 40]},
    ),
    "no words": (
        PROMPT + "Or 30-40 words.",
        ["--words", "none"],
        {"justification_words": None},
    ),
    "an example": (
        PROMPT + 'Or {"rating": <1-3>}',
        ["--example", "2"],
        {"factors": [{"key": "rating", "values": [1, 2, 3]}]},
    ),
    "no example": (
        PROMPT + "Or {rating: 3}",
        ["--example", "0", "--factor", "x", "--scale", "0,1"],
        {"envelope": "factor_results", "factors": [{"key": "x", "values": [0, 1]}]},
    ),
}


@pytest.mark.parametrize("case", COMPLETE.values(), ids=COMPLETE)
def test_the_options_that_are_asked_for_complete_the_import(
    rubric: Call, case: tuple[str, list[str], Any]
) -> None:
    text, options, expected = case
    path = written(text, "theirs.txt")
    asked = rubric("import", path)
    assert asked.code == 1
    assert options[0] in asked.err
    assert rubric("import", path, "-o", "out.yaml", *options).code == 0
    document = rubric("show", "out.yaml", "--json").document
    assert {key: document[key] for key in expected} == expected


USAGE = {
    "a scale of one": (["--scale", "5"], "expected a range such as 1-5"),
    "a scale of words": (["--scale", "good"], "expected a range such as 1-5"),
    "a scale of one value twice": (["--scale", "5,5"], "expected a range such as 1-5"),
    "a scale without scores": (["--scale", "a="], "expected NAME=VALUE"),
    "a slot without a role": (["--slot", "what"], "expected NAME=VALUE"),
    "words the wrong way round": (["--words", "30-15"], "expected minimum and maximum"),
    "words in words": (["--words", "few"], "expected minimum and maximum"),
    "an example below nought": (["--example", "-1"], "--example"),
    "an example in words": (["--example", "first"], "--example"),
    "an option that does not exist": (["--scales", "1-5"], "--scales"),
}


@pytest.mark.parametrize("case", USAGE.values(), ids=USAGE)
def test_an_option_that_cannot_be_meant_is_a_usage_error(
    rubric: Call, case: tuple[list[str], str]
) -> None:
    options, expected = case
    done = rubric("import", written(PROMPT, "theirs.txt"), *options)
    assert done.code == 2 and not done.out
    assert expected in done.err and "Traceback" not in done.err


ERRORS: dict[str, tuple[list[str], str]] = {
    "no such prompt": (["nowhere.txt"], "nowhere.txt: cannot be read"),
    "a folder": (["."], ".: cannot be read"),
    "not text": (["picture.txt"], "picture.txt: not UTF-8 at byte 0"),
    "too large": (["large.txt"], "large.txt: larger than"),
    "no such placeholder": (
        ["theirs.txt", "--slot", "x=input"],
        "--slot x: the prompt has no such placeholder",
    ),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_message_without_a_traceback(
    rubric: Call, case: tuple[list[str], str]
) -> None:
    arguments, expected = case
    written(PROMPT, "theirs.txt")
    Path("picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    Path("large.txt").write_text("x" * 2_000_000)
    done = rubric("import", *arguments)
    assert done.code == 1 and not done.out
    assert done.err.startswith("editjudge: ") and done.err.count("\n") == 1
    assert expected in done.err


def test_the_largest_prompt_that_can_be_imported_can_be_read_back(rubric: Call) -> None:
    text = PROMPT + "\x01" * (MAX_PROMPT - len(PROMPT))
    assert rubric("import", written(text, "theirs.txt"), "-o", "out.yaml").code == 0
    assert rubric("show", "out.yaml", "--json").code == 0


# --- nothing of a stranger's is obeyed ------------------------------------------------------------------------

EVIL = "\x1b[2J\x9b31m\u202e\x07"


def test_escape_sequences_of_a_rubric_file_do_not_reach_the_terminal(
    rubric: Call,
) -> None:
    evil = r'"\e[2J\x9b31m\u202e\a"'
    text = MINE.replace(
        "name: mine", f"name: {evil}\ndescription: {evil}\nrole: {evil}"
    ).replace("unity", evil)
    text = text.replace("results", evil).replace(
        "answer: {", f"answer: {{sections: [{evil}], "
    )
    path = written(text + f'task: "{{x}} from 1 to 9 score {evil[1:-1]}"\n')
    for arguments in (
        ["show"],
        ["show", "--prompt"],
        ["show", "--json"],
        ["show", "--prompt", "--json"],
        ["check"],
    ):
        done = rubric(arguments[0], path, *arguments[1:])
        assert done.out and clean(done.out) and clean(done.err), arguments


@pytest.mark.parametrize(
    "fault",
    [
        f'"{EVIL[0]}": 1',
        r'"\e[2J": 1',
        r'images: ["\e[2J"]',
        '"\\e[2J\\u202e": 1\n' * 2,
    ],
)
def test_escape_sequences_of_a_wrong_file_do_not_reach_the_terminal(
    rubric: Call, fault: str
) -> None:
    done = rubric("show", written(MINE + fault + "\n"))
    assert done.code == 1 and done.err and clean(done.err)


def test_escape_sequences_of_a_prompt_do_not_reach_the_terminal(rubric: Call) -> None:
    for text in (
        f"{EVIL} {{x}}",
        PROMPT + f'{{"{EVIL}": <1-3>}}',
        PROMPT + f"{{{EVIL}: 1}}",
        PROMPT + EVIL,
    ):
        done = rubric("import", written(text, "theirs.txt"), "-o", "out.yaml")
        assert done.err and clean(done.err)


def test_escape_sequences_in_names_do_not_reach_the_terminal(rubric: Call) -> None:
    for arguments in (
        ["show", EVIL],
        ["show", f"{EVIL}.yaml"],
        ["check", EVIL],
        ["import", f"{EVIL}.txt"],
    ):
        done = rubric(*arguments)
        assert done.code in (1, 2) and done.err and clean(done.err)


# --- as others call it ----------------------------------------------------------------------------------------


def test_the_commands_can_be_called_through_click() -> None:
    runner = CliRunner()
    assert runner.invoke(cli.app, ["rubric", "list"]).exit_code == 0
    shown = runner.invoke(cli.app, ["rubric", "show", "quality", "--json"])
    assert json.loads(shown.stdout) == files.load("quality").contract()
    helped = runner.invoke(cli.app, ["rubric", "--help"])
    assert helped.exit_code == 0 and all(
        verb in helped.stdout for verb in ("list", "show", "check", "import")
    )


def console(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    program = "from editjudge.cli import main; main()"
    command = [sys.executable, "-c", program, "rubric", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=300, check=False
    )


def test_the_console_script_imports_shows_and_refuses(tmp_path: Path) -> None:
    (tmp_path / "theirs.txt").write_text(PROMPT)
    assert (
        console("import", "theirs.txt", "-o", "out.yaml", folder=tmp_path).returncode
        == 0
    )
    printed = console("show", "out.yaml", "--json", folder=tmp_path)
    assert printed.returncode == 0 and list(json.loads(printed.stdout)) == CONTRACT
    refused = console("show", "owt.yaml", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("editjudge: owt.yaml: ")
    assert refused.stderr.count("\n") == 1


def test_deep_nesting_does_not_end_the_console_script(tmp_path: Path) -> None:
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    done = console("check", "deep.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("editjudge: deep.yaml:1: ")
    assert "20" in done.stderr and done.stderr.count("\n") == 1
