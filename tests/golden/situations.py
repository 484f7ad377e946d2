"""Situations of the golden files of wording: by verb, the name of a situation and its command line.

They share one folder: the inputs of `made`, the broken files of `write_broken`, and the runs that `BEFORE` makes."""

from __future__ import annotations

import json
from pathlib import Path

from . import made

NEW = "--store new.db"
REPLAY = "--concurrency 1 --max-failures 1 --quiet"
BEFORE = (
    f"run edits.jsonl --name single --rubric online --judge replay:first.jsonl {REPLAY}",
    f"run edits.jsonl --name later --rubric online --judge replay:later.jsonl {REPLAY}",
    f"run edits.jsonl --name strict --rubric quality --judge replay:second.jsonl --strict {REPLAY}",
    f"run edits.jsonl --name some --rubric fidelity --limit 3 --judge replay:first.jsonl {REPLAY}",
    f"run edits.jsonl --name garden --rubric garden.yaml --judge replay:garden.jsonl {REPLAY}",
    f"run scenes.jsonl --name scenes --rubric fidelity --judge replay:first.jsonl {REPLAY}",
    f"run edits.jsonl --name early --step 100 --rubric fidelity --judge replay:first.jsonl {REPLAY}",
    f"run edits.jsonl --name late --step 200 --rubric fidelity --judge replay:later.jsonl {REPLAY}",
    f"run edits.jsonl --name final --step 300 --rubric fidelity --judge replay:first.jsonl {REPLAY}",
    "pairs edits.jsonl -o pairs.jsonl --sample 12",
    f"run pairs.jsonl --name pairs --rubric preference --judge replay:votes.jsonl {REPLAY}",
    "ratings import ratings.csv --run single",
    "export single -o exported",
)
"""Command lines whose runs and files the situations use."""

SITUATIONS: dict[str, dict[str, str]] = {
    "run": {
        "done": f"run edits.jsonl --rubric fidelity --limit 3 --judge replay:first.jsonl {REPLAY} {NEW}",
        "resumed": f"run edits.jsonl --name some --rubric fidelity --limit 3 --judge replay:first.jsonl {REPLAY}",
        "too many failed": f"run edits.jsonl --rubric quality --name failing --judge replay:first.jsonl --quiet {NEW}",
        "dry run": "run edits.jsonl --judge openai/gpt-6-luna --dry-run",
        "pairs": f"run pairs.jsonl --name pairs --rubric preference --judge replay:votes.jsonl {REPLAY}",
        "set with scores": f"run edits.jsonl --name garden --rubric garden.yaml --judge replay:garden.jsonl {REPLAY}",
        "dry run, thinking": "run edits.jsonl --judge google/gemini-3.1-pro-preview --dry-run",
        "dry run, unknown price": "run edits.jsonl --judge openai/gpt-6-lunar --dry-run",
        "unknown tracker": "run edits.jsonl --judge replay:first.jsonl --log mlfow",
        "step with decimals": "run edits.jsonl --judge replay:first.jsonl --step 0.5 --log tensorboard",
        "missing manifest": "run nothing.jsonl --judge replay:first.jsonl",
        "broken line": "run broken.jsonl --judge replay:first.jsonl",
        "empty manifest": "run empty.jsonl --judge replay:first.jsonl",
        "same id twice": "run twice.jsonl --judge replay:first.jsonl",
        "other columns": "run columns.jsonl --judge replay:first.jsonl",
        "no inputs": "run away.jsonl --judge measured",
        "outside the folder": "run outside.jsonl --judge replay:first.jsonl",
        "unknown rubric": "run edits.jsonl --rubric qualty --judge replay:first.jsonl",
        "invalid rubric": "run edits.jsonl --rubric typo.yaml --judge replay:first.jsonl",
        "unknown judge": "run edits.jsonl --judge opnai/gpt-6-luna",
        "judge without a model": "run edits.jsonl --judge openai",
        "no key": "run edits.jsonl --judge openai/gpt-6-luna",
        "setting that the judge lacks": "run edits.jsonl --judge measured -J rehsh=1",
        "no address": "run edits.jsonl --judge openai-compatible/m",
        "missing replies": "run edits.jsonl --judge replay:nothing.jsonl",
        "broken replies": "run edits.jsonl --judge replay:broken.jsonl",
        "unknown model": "run edits.jsonl --model aldr --judge replay:first.jsonl",
        "unknown column": "run edits.jsonl --column input=sorce --judge replay:first.jsonl",
        "unknown field": "run edits.jsonl --column inptu=input --judge replay:first.jsonl",
        "another spec": f"run edits.jsonl --name single --rubric online --judge replay:second.jsonl {REPLAY}",
        "bad part": "run edits.jsonl --part 3of4 --judge replay:first.jsonl",
        "bad condition": "run edits.jsonl --where overall --judge replay:first.jsonl",
        "condition on an unknown score": "run edits.jsonl --where 'single:alignmnt>=3' --judge replay:first.jsonl",
        "condition on an unknown run": "run edits.jsonl --where 'singel:overall>=3' --judge replay:first.jsonl",
        "bad concurrency": "run edits.jsonl --concurrency many --judge replay:first.jsonl",
        "repeats of 0": "run edits.jsonl --repeats 0 --judge replay:first.jsonl",
        "not a number": "run edits.jsonl --limit few --judge replay:first.jsonl",
        "unknown option": "run edits.jsonl --rubrik online",
        "unknown setting": "run edits.jsonl --judge replay:first.jsonl -J colour",
        "former spelling": f"run edits.jsonl --rubric fidelity --limit 1 --reasks 0"
        f" --judge replay:first.jsonl {REPLAY} {NEW}",
        "no batches": "run edits.jsonl --batch --judge replay:first.jsonl",
        "budget without prices": "run edits.jsonl --budget 1 --judge vllm/m --base-url http://127.0.0.1:9/v1",
        "not a price file": "run edits.jsonl --budget 1 --prices typo.yaml --judge vllm/m --base-url http://127.0.0.1:9/v1",
        "pairs by a rubric of single edits": f"run pairs.jsonl --rubric fidelity --judge replay:first.jsonl {NEW}",
        "single edits by a rubric of pairs": f"run edits.jsonl --rubric preference --judge replay:first.jsonl {NEW}",
        "fused set with formulas": "run edits.jsonl --rubric garden.yaml --fuse --judge replay:first.jsonl",
        "not a store": "run edits.jsonl --judge replay:first.jsonl --store broken.jsonl",
    },
    "judge": {
        "judged": "judge --input small/in-0.png --edited small/birch-00.png"
        " --instruction 'Tend to bed 0.' --rubric fidelity --judge replay:first.jsonl",
        "envelope": "judge --input small/in-0.png --edited small/birch-00.png"
        " --instruction 'Tend to bed 0.' --rubric fidelity --judge replay:first.jsonl --envelope",
        "refused": "judge --input small/in-0.png --edited small/alder-00.png"
        " --instruction 'Tend to bed 0.' --rubric fidelity --judge replay:first.jsonl",
        "no recorded reply": "judge --input small/in-0.png --edited small/alder-00.png"
        " --id none --instruction x --rubric fidelity --judge replay:first.jsonl",
        "no edited image": "judge --input small/in-0.png --instruction x",
        "no input": "judge --edited small/alder-00.png --instruction x --rubric fidelity --judge measured",
        "no instruction": "judge --input small/in-0.png --edited small/alder-00.png --rubric fidelity --judge measured",
        "missing file": "judge --input small/in-0.png --edited none.png --instruction x --judge measured",
        "not an image": "judge --input small/in-0.png --edited small/cedar-09.png --instruction x"
        " --rubric quality --judge measured",
        "unknown judge": "judge --input small/in-0.png --edited small/alder-00.png --instruction x --judge guess",
        "unknown rubric": "judge --input small/in-0.png --edited small/alder-00.png --instruction x --rubric fidelty",
        "no key": "judge --input small/in-0.png --edited small/alder-00.png --instruction x --judge anthropic/claude",
    },
    "report": {
        "report": "report strict",
        "of a set": "report garden --width 0.5 --by season",
        "of pairs": "report pairs",
        "written": "report some -o report.html",
        "unknown run": "report singel",
        "unknown field": "report single --by seasn",
        "unknown format": "report single --format pdf",
        "unknown ending": "report single -o report.pdf",
        "unknown factor": "report single --map-factor PQ=qualty",
        "no expected scores": "report single --use expected",
        "missing store": "report single --store nothing.db",
    },
    "bridge": {
        "two judges": "bridge single later -o bridge.json",
        "same answers": "bridge single single -o same.json",
        "rated": "bridge single later --ratings ratings.csv --map-factor wish=alignment",
        "few images": "bridge some some",
        "no common edit": "bridge single scenes",
        "no common factor": "bridge garden early",
        "unknown run": "bridge singel later",
        "mapping without ratings": "bridge single later --map-factor wish=alignment",
        "unknown ending": "bridge single later -o bridge.pdf",
        "of pairs": "bridge pairs single",
    },
    "compare": {
        "through a bridge": "compare single single --through same.json",
        "through a bridge in the wrong direction": "compare later single --through bridge.json",
        "through a bridge without comparable scores": "compare single later --through bridge.json",
        "through another file": "compare single later --through broken.jsonl",
        "through a missing file": "compare single later --through nothing.json",
        "through a bridge with one run": "compare single --through bridge.json",
        "through a bridge with a judge": "compare single later --through bridge.json --judge replay:first.jsonl",
        "models": "compare single --a alder --b birch",
        "runs": "compare single later",
        "every model": "compare garden",
        "judges of one": "compare single --by judge",
        "rubrics": "compare single --by rubric",
        "unknown run": "compare singel",
        "unknown model": "compare single --a oak --b alder",
        "one side": "compare single --a alder",
        "unknown factor": "compare single --factor alignmnt",
        "unknown judge": "compare single --judge replay:frist.jsonl",
        "unknown primary": "compare single --primary qualty",
        "other rubrics": "compare single garden",
        "no common edit": "compare single scenes",
        "of pairs": "compare pairs",
    },
    "agree": {
        "run": "agree single --ratings ratings.csv --map-factor wish=alignment --map-factor look=quality",
        "files": "agree --scores scores.csv --ratings ratings.csv",
        "calibrated": "agree single --ratings ratings.csv --map-factor wish=alignment --calibrate --estimate",
        "preferences": "agree single --preferences preferences.csv",
        "nothing to compare": "agree",
        "no ratings": "agree --scores scores.csv",
        "unmapped factors": "agree garden --ratings ratings.csv --map-factor wish=natural --map-factor look=beauty",
        "bad mapping": "agree single --ratings ratings.csv --map-factor wish",
        "no factor in common": "agree strict --ratings wishes.csv",
        "missing file": "agree single --ratings nothing.csv",
        "bad ratings": "agree single --ratings bad_ratings.csv",
        "not a ratings file": "agree single --ratings scores.csv",
        "no ratings in the store": "agree garden",
        "ratings of other edits": "agree scenes --ratings ratings.csv --map-factor wish=alignment",
    },
    "gate": {
        "passes": "gate single --min alignment=3 --min overall=3.5 --max-failures 1",
        "fails": "gate single --min alignment=6.5 --max-failures 1",
        "unsure": "gate single --min quality=4.8 --if-unsure fail --max-failures 1",
        "failures": "gate single --min alignment=3",
        "baseline": "gate later --baseline single --max-drop 0.2 --max-failures 1",
        "set scores": "gate garden --min overall=5 --max waste=4 --max-failures 1",
        "no threshold": "gate single",
        "drop without a baseline": "gate single --max-drop 0.2",
        "unknown run": "gate singel --min overall=3",
        "unknown baseline": "gate single --baseline latr",
        "unknown factor": "gate single --min alignmnt=3",
        "unknown model": "gate single --min overall=3 --model oak",
        "bad threshold": "gate single --min overall",
        "off the scale": "gate single --min overall=9",
        "maximum where higher is better": "gate single --max overall=4",
        "other rubrics": "gate single --baseline garden",
        "no common edit": "gate single --baseline scenes",
        "of pairs": "gate pairs --min overall=3",
    },
    "drift": {
        "drift": "drift later --against single",
        "same answers": "drift some --against some",
        "unknown run": "drift latr --against single",
        "no earlier run": "drift later",
        "other rubrics": "drift garden --against single",
        "no common edit": "drift scenes --against single",
    },
    "probe": {
        "dry run": "probe --photos 1 --rubric fidelity --judge openai/gpt-6-luna --dry-run --quiet",
        "unknown rubric": "probe --rubric qualty",
        "unknown ending": "probe -o probe.pdf",
        "no photographs": "probe --photos 0",
    },
    "audit": {
        "nothing found": "audit candidates.jsonl",
        "findings": "audit scenes.jsonl",
        "broken line": "audit broken.jsonl",
        "same id twice": "audit twice.jsonl",
        "other columns": "audit columns.jsonl",
        "missing manifest": "audit nothing.jsonl",
        "unknown field": "audit edits.jsonl --column inptu=input",
        "outside the folder": "audit outside.jsonl",
    },
    "rubric": {
        "list": "rubric list",
        "show": "rubric show fidelity",
        "show a set": "rubric show garden.yaml",
        "check": "rubric check garden.yaml",
        "recipes": "rubric recipes",
        "unknown rubric": "rubric show qualty",
        "missing file": "rubric show nothing.yaml",
        "unknown key": "rubric check typo.yaml",
        "not YAML": "rubric check broken.yaml",
        "not a rubric": "rubric check list.yaml",
        "unknown factor in a formula": "rubric check formula.yaml",
        "import": "rubric import prompt.txt",
        "import of a text without a form": "rubric import noform.txt",
        "import of a missing file": "rubric import nothing.txt",
        "unknown recipe": "rubric import gedt --from . -o out.yaml",
        "recipe without a checkout": "rubric import gedit -o out.yaml",
        "unknown layout": "rubric show fidelity --prompt --layout publishd",
    },
    "parse": {
        "accepted": "parse --rubric fidelity reply.txt",
        "refused": "parse --rubric quality reply.txt",
        "another id": "parse --rubric fidelity --id oak-00 reply.txt",
        "prose": "parse --rubric fidelity prompt.txt",
        "missing file": "parse --rubric fidelity nothing.txt",
        "unknown rubric": "parse --rubric fidelty reply.txt",
        "not UTF-8": "parse --rubric fidelity latin.txt",
    },
    "serve": {
        "no token": "serve --host 0.0.0.0 --judge replay:first.jsonl",
        "missing store": "serve --store nothing.db --judge replay:first.jsonl",
        "unknown rubric": "serve --judge replay:first.jsonl --rubric qualty",
        "unknown dialect": "serve --judge replay:first.jsonl --dialect unirll",
        "unknown factor in a formula": "serve --judge replay:first.jsonl --rubric fidelity --formula alignmnt",
        "budget without prices": "serve --budget 1 --judge vllm/m",
        "short token": "serve --token abc",
        "weight of 0": "serve --judge replay:first.jsonl --weight alignment=0",
        "judge of pixels without rubrics": "serve --judge measured",
        "judge for no rubric": "serve --judge replay:first.jsonl --judge-for fidelty=measured",
        "bad port": "serve --port 99999",
        "unknown judge": "serve --judge opnai/gpt-6-luna",
        "no key": "serve --judge openai/gpt-6-luna",
        "missing replies": "serve --judge replay:nothing.jsonl",
    },
    "export": {
        "export": "export some -o some",
        "again": "export some -o some",
        "another run into the same folder": "export single -o some",
        "filtered": "export single -o good --where 'overall>=4.5'",
        "unknown run": "export singel -o out",
        "unknown score": "export single -o out --where 'alignmnt>=4'",
        "bad condition": "export single -o out --where overall",
        "unknown format": "export single -o out --format xml",
        "eval results": "export single -o hub --format eval-results --dataset garden/edits",
        "eval results of no dataset": "export single -o out --format eval-results",
        "samples": "export single -o samples --format fiftyone",
        "address for a folder": "export single -o s3://bucket/name --format fiftyone",
        "no folder": "export single",
    },
    "import-run": {
        "import": "import-run exported --store copy.db",
        "again": "import-run exported --store copy.db",
        "changed file": "import-run changed --store other.db",
        "missing folder": "import-run nothing --store other.db",
        "not an export": "import-run small --store other.db",
        "unfinished export": "import-run unfinished --store other.db",
    },
    "runs": {
        "list": "runs list",
        "show": "runs show single",
        "remove": "runs rm some --yes",
        "remove without a terminal": "runs rm single",
        "unknown run": "runs show singel",
        "unknown command": "runs remove single",
        "missing store": "runs list --store nothing.db",
        "not a store": "runs list --store ratings.csv",
    },
    "ratings": {
        "import": "ratings import ratings.csv --run later",
        "again": "ratings import ratings.csv --run later",
        "by id alone": "ratings import ratings.csv",
        "export": "ratings export out.csv",
        "links": "ratings links",
        "remove": "ratings rm --rater cho --yes",
        "remove without a terminal": "ratings rm --rater ann",
        "unknown rater": "ratings rm --rater dee --yes",
        "unknown study": "ratings invite 9 ann",
        "missing file": "ratings import nothing.csv",
        "bad ratings": "ratings import bad_ratings.csv --run single",
        "unknown run": "ratings import ratings.csv --run singel",
        "of other edits": "ratings import ratings.csv --run scenes",
    },
    "pairs": {
        "pairs": "pairs edits.jsonl -o all.jsonl",
        "next": "pairs edits.jsonl -o next.jsonl --next pairs",
        "unknown model": "pairs edits.jsonl -o out.jsonl --against aldr",
        "one model": "pairs single.jsonl -o out.jsonl",
        "missing manifest": "pairs nothing.jsonl -o out.jsonl",
        "next of a run of single edits": "pairs edits.jsonl -o out.jsonl --next single",
        "unknown factor": "pairs edits.jsonl -o out.jsonl --next pairs --factor overal",
        "no file": "pairs edits.jsonl",
    },
    "manifest": {
        "unknown benchmark": "manifest small --benchmark gedt --instructions edits.jsonl -o out.jsonl",
        "no benchmark": "manifest small --instructions edits.jsonl -o out.jsonl",
        "missing tree": "manifest nothing --benchmark gedit --instructions edits.jsonl -o out.jsonl",
        "missing list": "manifest small --benchmark gedit --instructions nothing.json -o out.jsonl",
        "another list": "manifest small --benchmark gedit --instructions edits.jsonl -o out.jsonl",
    },
    "trend": {
        "runs with steps": "trend early final --model alder",
        "different judges": "trend early late --model alder",
        "several models": "trend early late",
        "runs without a step": "trend single later",
        "one run": "trend early --model alder",
        "unknown run": "trend early lat",
    },
    "docs": {
        "unknown page": "docs statistic",
        "two pages": "docs gate faq",
    },
    "doctor": {
        "server that does not answer": "doctor --server http://127.0.0.1:9/v1 --timeout 2",
        "server without a scheme": "doctor --server 127.0.0.1:9",
        "model without a server": "doctor --model m",
    },
}
"""By verb, the name of a situation and its command line, which a shell would read. They are called in this order."""

PROMPT = """
Rate the edited image against the source image. Give a score from 0 to 10.
Answer in JSON: {"score": 0, "reasoning": "..."}
"""
TYPO = """
name: mine
task: Judge.
images: [edited]
scale: {values: [1, 2, 3]}
factor: []
"""
FORMULA = """
name: mine
description: A set.
rubrics: [{use: fidelity}]
score: {overall: mean(alignmnt)}
"""


def write_broken(folder: Path) -> None:
    """Write the files that the situations need beside those of `made`: most of them are wrong in one way."""
    rows = made.read_rows(folder / "edits.jsonl")
    first = rows[0]
    renamed = {"source": first["input"], "target": first["edited"], "caption": "Weed."}
    tables = {
        "twice": [first, first],
        "columns": [renamed],
        "away": [row | {"input": f"away/{n}.png"} for n, row in enumerate(rows[:4])],
        "outside": [first | {"input": "../in.png"}],
        "single": rows[::3],
    }
    for name, table in tables.items():
        made.write_rows(folder / f"{name}.jsonl", table)
    scores = {"alignment": 6, "completeness": 5, "plausibility": 7}
    texts = {
        "broken.jsonl": json.dumps(first) + '\n{"id": "b", "input": \n',
        "empty.jsonl": "",
        "typo.yaml": TYPO,
        "broken.yaml": "name: [",
        "list.yaml": "- a\n- b\n",
        "formula.yaml": FORMULA,
        "prompt.txt": PROMPT,
        "noform.txt": "Say whether you like it.\n",
        "reply.txt": made.reply("fidelity", scores, "alder-00"),
        "bad_ratings.csv": "item,rater,factor,score\nalder-00,ann,wish,much\n",
        "wishes.csv": "item,rater,factor,score\nalder-00,ann,wish,4\nbirch-00,ann,wish,3\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "latin.txt").write_bytes("Farbe: grün".encode("latin-1"))
