"""`editjudge agree`: judges against people."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr

from tests.faults import check_error, shows

from .stores import Call, Spec, call, made, quality

__all__ = ["call"]

DATA = Path(__file__).parents[3] / "shared" / "data"
FIGURES = {"n", "spearman", "pearson", "kendall", "mae", "ci"}
HUMANS = {"raters", "alpha_interval", "alpha_ordinal", "icc1", "loo_spearman"}


def rated(
    path: Path,
    models: tuple[str, ...] = ("good", "poor"),
    raters: int = 3,
    factors: tuple[str, ...] = ("alignment",),
) -> Path:
    """People who see much the same as the judge of `quality`, and waver more."""
    rng = np.random.default_rng(0)
    lines = ["item,rater,factor,score"]
    for model in models:
        for n in range(24):
            for factor in factors:
                seen = quality(model, n, "x", factor, 0)
                lines += [
                    f"{model}-{n},p{r},{factor},{int(np.clip(seen + rng.integers(-1, 2), 1, 7))}"
                    for r in range(raters)
                ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def scored(path: Path, judge: str = "m", extra: str = "") -> Path:
    lines = (
        ["item,judge,factor,score,guessed", extra]
        if extra
        else ["item,judge,factor,score"]
    )
    end = ",0" if extra else ""
    lines += [
        f"{m}-{n},{judge},alignment,{quality(m, n, 'openai/m', 'alignment', 0)}{end}"
        for m in ("good", "poor")
        for n in range(24)
        if not (extra and n == 0)
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_the_document_has_the_published_shape(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db")
    ratings = rated(tmp_path / "r.csv")
    document = call(
        "agree", "r", "--ratings", ratings, "--store", store, "--json"
    ).document
    assert list(document)[:2] == ["factors", "humans"]
    one = document["factors"]["alignment"]["openai/m"]
    assert set(one) >= FIGURES and set(document["humans"]["alignment"]) >= HUMANS
    assert one["n"] == 48 and document["humans"]["alignment"]["raters"] == 3
    lo, hi = one["ci"]["exact"]
    assert lo < one["exact"] < hi
    assert (one["ci"]["spearman"] is None) == ("spearman" in one["ci_reason"])
    assert (
        one["bounds"]["worst"] == one["bounds"]["best"] == one["spearman"]
        and not one["overturnable"]
    )
    assert document["factors"]["plausibility"]["openai/m"]["n"] == 0
    assert document["factors"]["plausibility"]["openai/m"]["spearman"] is None


def test_figures_are_over_one_pair_per_item(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", Spec(repeats=2))
    ratings = rated(tmp_path / "r.csv")
    one = call("agree", "r", "--ratings", ratings, "--store", store, "--json").document[
        "factors"
    ]["alignment"]["openai/m"]
    people: dict[str, list[float]] = {}
    for line in ratings.read_text().splitlines()[1:]:
        people.setdefault(line.split(",")[0], []).append(float(line.split(",")[3]))
    items = [(m, n) for m in ("good", "poor") for n in range(24)]
    x = [
        np.mean([quality(m, n, "openai/m", "alignment", k) for k in (0, 1)])
        for m, n in items
    ]
    y = [round(float(np.mean(people[f"{m}-{n}"])), 9) for m, n in items]
    assert one["spearman"] == pytest.approx(spearmanr(x, y).statistic)
    assert one["pearson"] == pytest.approx(pearsonr(x, y).statistic)
    assert one["kendall"] == pytest.approx(kendalltau(x, y).statistic)
    assert one["mae"] == pytest.approx(np.mean(np.abs(np.array(x) - np.array(y))))


def test_scores_from_a_file_give_what_the_same_scores_of_a_run_give(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db")
    ratings = rated(tmp_path / "r.csv")
    scores = scored(tmp_path / "j.csv", "openai/m")
    manifest = tmp_path / "m.jsonl"
    rows = [
        {
            "id": f"{m}-{n}",
            "input": None,
            "edited": None,
            "instruction": "x",
            "model": m,
            "group": f"image-{n // 2}",
        }
        for m in ("good", "poor")
        for n in range(24)
    ]
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = call(
        "agree",
        "--ratings",
        ratings,
        "--scores",
        scores,
        "--manifest",
        manifest,
        "--json",
    ).document
    run = call("agree", "r", "--ratings", ratings, "--store", store, "--json").document
    both = [d["factors"]["alignment"]["openai/m"] for d in (files, run)]
    for name in ("n", "spearman", "mae", "within_model"):
        assert both[0][name] == both[1][name]
    same = [
        {k: v for k, v in one["ci"].items() if k not in ("mae", "bias")} for one in both
    ]
    assert same[0] == same[1], (
        "but a file does not say on what scale it is, which errors need"
    )


def test_ratings_of_the_store_are_used_where_no_file_is_named(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db")
    ratings = rated(tmp_path / "r.csv")
    done = call("agree", "r", "--store", store)
    assert done.code == 2 and "has no ratings" in done.err
    call("ratings", "import", ratings, "--store", store)
    kept = call("agree", "r", "--store", store, "--json").document
    assert (
        kept["factors"]
        == call(
            "agree", "r", "--ratings", ratings, "--store", store, "--json"
        ).document["factors"]
    )


def test_a_person_reads_judges_beside_a_further_rater(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(judges=("openai/m", "anthropic/c")))
    done = call("agree", "r", "--ratings", rated(tmp_path / "r.csv"), "--store", store)
    assert done.code == 0 and done.widest <= 100
    rows = [line.split() for line in done.out.splitlines()]
    first = next(i for i, row in enumerate(rows) if row[:1] == ["alignment"])
    assert (
        rows[first][1:4] == ["(a", "further", "rater)"]
        and rows[first + 1][0] == "openai/m"
    )
    for table in ("People among themselves", "Raters", "Distance from people"):
        assert table in done.out


def test_the_lead_has_no_figure_without_its_number_of_edits_and_interval(
    call: Call, tmp_path: Path
) -> None:
    asked = (
        "agree",
        "--ratings",
        rated(tmp_path / "r.csv"),
        "--scores",
        scored(tmp_path / "j.csv"),
    )
    one = call(*asked, "--json").document["factors"]["alignment"]["m"]
    lead = " ".join(call(*asked).out.partition("\n\n")[0].split())
    lo, hi = one["ci"]["spearman"]
    assert (
        f"alignment {one['spearman']:.2f} [{lo:.2f}, {hi:.2f}], n = {one['n']}" in lead
    )
    lo, hi = one["further_rater"]["ci"]["spearman"]
    assert f"{one['further_rater']['spearman']:.2f} [{lo:.2f}, {hi:.2f}]" in lead


def test_few_ratings_give_no_figure_to_readers_and_bare_ones_to_programs(
    call: Call, tmp_path: Path
) -> None:
    ratings = tmp_path / "r.csv"
    scores = tmp_path / "j.csv"
    values = (1, 3, 4, 2, 5, 7, 6, 6)
    people = [
        f"e{n},p{r},alignment,{value - r}"
        for n, value in enumerate(values)
        for r in range(2)
    ]
    ratings.write_text("\n".join(["item,rater,factor,score", *people]), "utf-8")
    judged = [f"e{n},m,alignment,{value}" for n, value in enumerate(values[::-1])]
    scores.write_text("\n".join(["item,judge,factor,score", *judged]), "utf-8")
    document = call(
        "agree", "--ratings", ratings, "--scores", scores, "--json"
    ).document
    one = document["factors"]["alignment"]["m"]
    assert one["n"] == 8 and one["spearman"] is not None
    assert one["ci"]["spearman"] is None and one["ci_reason"]["spearman"]
    assert one["against_further_rater"]["verdict"] is None
    human = document["humans"]["alignment"]
    assert (human["shared"], human["further_rater"]["spearman"]) == (8, None) and human[
        "further_rater"
    ]["reason"]
    out = call("agree", "--ratings", ratings, "--scores", scores).out
    assert (
        f"{abs(one['spearman']):.2f}" not in out
        and f"{human['loo_spearman']:.2f}" not in out
    )
    assert "(a further rater) 8" not in " ".join(out.split()), "no row"
    assert "n = 8" in out


def test_a_judge_under_two_rubrics_has_two_keys(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", Spec(rubrics=("fidelity", "reference")))
    document = call(
        "agree", "r", "--ratings", rated(tmp_path / "r.csv"), "--store", store, "--json"
    ).document
    assert set(document["factors"]["alignment"]) == {
        "openai/m@fidelity",
        "openai/m@reference",
    }
    assert set(document["factors"]["seamlessness"]) == {"openai/m"}


def test_groups_of_factors_stand_beside_factors(call: Call, tmp_path: Path) -> None:
    factors = ("alignment", "completeness", "plausibility")
    store = made(tmp_path / "s.db")
    ratings = rated(tmp_path / "r.csv", factors=factors)
    document = call(
        "agree", "r", "--ratings", ratings, "--store", store, "--json"
    ).document
    assert document["groups"]["factors"]["fidelity"]["openai/m"]["n"] == 48
    printed = call("agree", "r", "--ratings", ratings, "--store", store).out
    assert shows(printed, "group of factors", "fidelity", "openai/m", 48)


def test_guessed_scores_are_left_out_and_what_they_change_is_shown(
    call: Call, tmp_path: Path
) -> None:
    ratings = rated(tmp_path / "r.csv")
    scores = scored(tmp_path / "j.csv", extra="good-0,m,alignment,1,1")
    asked = ("agree", "--ratings", ratings, "--scores", scores)
    document = call(*asked, "--json").document
    assert document["factors"]["alignment"]["m"]["n"] == 46
    assert document["with_guessed"]["alignment"]["m"]["n"] == 47
    done = call(*asked)
    assert "1 guessed" in " ".join(done.out.split()) and "their effect" in done.out
    kept = call(*asked, "--with-guessed", "--json").document
    assert kept["factors"]["alignment"]["m"]["n"] == 47 and "with_guessed" not in kept


def test_an_empty_score_failed_and_a_second_row_is_a_repeat(
    call: Call, tmp_path: Path
) -> None:
    scores = tmp_path / "j.csv"
    scores.write_text(
        scored(tmp_path / "x.csv").read_text()
        + "good-0,m,alignment,\ngood-1,m,alignment,7\nnew,m,alignment,\n"
    )
    done = call(
        "agree", "--ratings", rated(tmp_path / "r.csv"), "--scores", scores, "--json"
    )
    assert done.document["factors"]["alignment"]["m"]["n"] == 48


def test_calibration_and_estimates_are_given_where_asked_for(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(edits=60))
    ratings = rated(tmp_path / "r.csv")
    asked = (
        "agree",
        "r",
        "--ratings",
        ratings,
        "--store",
        store,
        "--calibrate",
        "--estimate",
    )
    document = call(*asked, "--json").document
    assert document["calibration"]["alignment"]["openai/m"]["map"]["x"]
    estimate = document["estimates"]["alignment"]["openai/m"]["good"]
    assert (estimate["rated"], estimate["scored_only"]) == (24, 36)
    few, many = estimate["human_ci"]
    assert few < estimate["human_mean"] < many and (estimate["ci"] is None) == (
        estimate["ci_reason"] is not None
    )
    done = call(*asked)
    assert (
        "Calibration onto people's scale" in done.out
        and "with the judge" in done.out
        and done.widest <= 100
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            ["a,p,f,1", "b,p,f,2", "c,p,f,3"],
            "one rater: agreement among people is undefined",
        ),
        (["a,p,f,1", "a,q,f,1", "b,p,f,1", "b,q,f,1"], "every rating is the same"),
        (["a,p,f,1", "b,q,f,2"], "no item was rated twice"),
    ],
)
def test_degenerate_ratings_are_answered_in_words(
    call: Call, tmp_path: Path, rows: list[str], said: str
) -> None:
    ratings = tmp_path / "r.csv"
    scores = tmp_path / "j.csv"
    ratings.write_text("\n".join(["item,rater,factor,score", *rows]))
    scores.write_text("item,judge,factor,score\na,m,f,3\nb,m,f,3\nc,m,f,3\na,n,f,\n")
    done = call("agree", "--ratings", ratings, "--scores", scores)
    assert done.code == 0 and said in done.out and "nan" not in done.out.lower()
    assert shows(done.out, "same score")
    document = call(
        "agree", "--ratings", ratings, "--scores", scores, "--json"
    ).document
    assert (
        document["factors"]["f"]["m"]["spearman"] is None
        and document["factors"]["f"]["n"]["n"] == 0
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--ratings", "r.csv"],
        ["r", "--scores", "s.csv"],
        ["--scores", "s.csv"],
        ["r", "--manifest", "m.jsonl"],
    ],
)
def test_a_call_that_cannot_be_meant_exits_with_2(
    call: Call, arguments: list[str]
) -> None:
    done = call("agree", *arguments)
    assert (done.code, done.out) == (2, "") and done.err


def test_files_of_other_items_or_factors_are_a_mistake_and_told(
    call: Call, tmp_path: Path
) -> None:
    ratings = rated(tmp_path / "r.csv")
    scores = tmp_path / "j.csv"
    for row, said in (
        ("other,m,alignment,1", "no item has both"),
        ("good-1,m,other,1", "no factor has both"),
    ):
        scores.write_text(f"item,judge,factor,score\n{row}\n")
        done = call("agree", "--ratings", ratings, "--scores", scores)
        assert done.code == 1 and said in done.err


def published(path: Path, names: dict[str, str]) -> Path:
    """The same ratings under other names."""
    text = rated(path, factors=tuple(names)).read_text("utf-8")
    for ours, theirs in names.items():
        text = text.replace(f",{ours},", f",{theirs},")
    path.write_text(text, "utf-8")
    return path


def test_factors_that_people_call_otherwise_can_be_said_to_be_the_same(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db")
    own = rated(tmp_path / "own.csv")
    other = published(tmp_path / "r.csv", {"alignment": "SC"})
    command = ("agree", "r", "--store", store, "--ratings")
    done = call(*command, other)
    assert done.code == 1
    check_error(done.error, "no_common_factor", "people SC", "--map-factor SC=overall")
    expected = call(*command, own, "--json").document
    assert (
        call(*command, other, "--map-factor", "SC=alignment", "--json").document
        == expected
    )
    both = call(
        *command,
        other,
        "--map-factor",
        "SC=alignment",
        "--map-factor",
        "SC=overall",
        "--json",
    ).document
    assert (
        set(both["humans"]) == {"alignment", "overall"}
        and both["factors"]["overall"]["openai/m"]["n"] == 48
    )
    assert both["factors"]["alignment"] == expected["factors"]["alignment"]


def test_the_example_of_names_that_are_alike_is_the_usual_one(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(rubrics=("online",)))
    ratings = published(tmp_path / "r.csv", {"alignment": "PQ", "plausibility": "SC"})
    done = call("agree", "r", "--store", store, "--ratings", ratings)
    factors = "unchanged_regions, global_consistency, identity_preservation ..."
    check_error(
        done.error, "no_common_factor", factors, "PQ, SC", "--map-factor SC=fidelity"
    )


def test_what_measured_was_fitted_to_is_said_beside_it_and_beside_no_other(
    call: Call, tmp_path: Path
) -> None:
    ratings = rated(
        tmp_path / "r.csv", factors=("alignment", "completeness", "plausibility")
    )
    for judge, times in (("measured", 1), ("openai/measured", 0)):
        store = made(
            tmp_path / f"{times}.db",
            Spec(judges=(judge,), rubrics=("fidelity", "reference")),
        )
        out = " ".join(
            call("agree", "r", "--ratings", ratings, "--store", store).out.split()
        )
        assert (
            out.count(
                "measured was fitted to people's quality ratings of ImagenHub's edits"
            )
            == times
        )


def test_columns_that_do_not_fit_are_named(call: Call, tmp_path: Path) -> None:
    store = made(
        tmp_path / "s.db",
        Spec(judges=("openrouter/a-provider-with-a-name/and-a-model-with-a-long-one",)),
    )
    done = call("agree", "r", "--ratings", rated(tmp_path / "r.csv"), "--store", store)
    assert shows(done.out, "left out", "Kendall") and done.widest <= 100


def test_factors_of_files_can_be_renamed_too(call: Call, tmp_path: Path) -> None:
    other = published(tmp_path / "r.csv", {"alignment": "SC"})
    asked = (
        "agree",
        "--ratings",
        other,
        "--scores",
        scored(tmp_path / "j.csv"),
        "--map-factor",
        "SC=alignment",
    )
    assert call(*asked, "--json").document["factors"]["alignment"]["m"]["n"] == 48


def test_people_may_rate_an_aggregate_by_its_name(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", Spec(rubrics=("fidelity", "preservation")))
    names = {
        "alignment": "fidelity",
        "completeness": "overall",
        "plausibility": "plausibility",
    }
    ratings = published(tmp_path / "r.csv", names)
    document = call(
        "agree", "r", "--ratings", ratings, "--store", store, "--json"
    ).document
    one = document["factors"]["fidelity"]["openai/m"]
    said = [
        np.mean(
            [
                quality(m, n, "openai/m", f, 0)
                for f in ("alignment", "completeness", "plausibility")
            ]
        )
        for m in ("good", "poor")
        for n in range(24)
    ]
    people: dict[str, list[float]] = {}
    for line in ratings.read_text().splitlines()[1:]:
        item, _, factor, score = line.split(",")
        people.setdefault(item, []).extend(
            [float(score)] if factor == "fidelity" else []
        )
    means = [
        round(float(np.mean(people[f"{m}-{n}"])), 9)
        for m in ("good", "poor")
        for n in range(24)
    ]
    assert one["spearman"] == pytest.approx(
        spearmanr(np.round(said, 9), means).statistic
    )
    assert document["factors"]["overall"]["openai/m"]["n"] == 48
    call("ratings", "import", ratings, "--store", store)
    call("report", "r", "--store", store, "-o", tmp_path / "r.html")
    assert 'id="people"' in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--map-factor", "SC"], "--map-factor SC:"),
        (["--map-factor", "alignmant=completeness"], 'did you mean "alignment"?'),
        (["--map-factor", "alignment=overal"], 'did you mean "overall"?'),
        (
            [
                "--map-factor",
                "alignment=overall",
                "--map-factor",
                "plausibility=overall",
            ],
            "cannot both be overall",
        ),
        (["--map-factor", "alignment=plausibility"], "cannot both be plausibility"),
    ],
)
def test_a_name_that_cannot_be_meant_is_told(
    call: Call, tmp_path: Path, arguments: list[str], said: str
) -> None:
    store = made(tmp_path / "s.db")
    ratings = rated(tmp_path / "r.csv", factors=("alignment", "plausibility"))
    done = call("agree", "r", "--ratings", ratings, "--store", store, *arguments)
    assert (done.code, done.out) == (2, "") and said in done.err


@pytest.mark.parametrize(
    ("factor", "named"),
    [
        ("quality", ["scale_realism", "48 abstained", "--map-factor alignment="]),
        ("scale_realism", ["scale_realism", "48 abstained"]),
    ],
)
def test_a_mapping_to_a_score_that_no_edit_has_is_refused_with_the_factors_that_abstain(
    call: Call, tmp_path: Path, factor: str, named: list[str]
) -> None:
    def some(model: str, n: int, judge: str, key: str, repeat: int) -> float | None:
        return None if key == "scale_realism" else quality(model, n, judge, key, repeat)

    spec = Spec(rubrics=("quality", "preservation"))
    store = made(tmp_path / "s.db", spec, some)
    ratings = rated(tmp_path / "r.csv")
    words = ("--store", store, "--map-factor", f"alignment={factor}")
    done = call("agree", "r", "--ratings", ratings, *words)
    assert (done.code, done.out) == (1, "")
    check_error(done.error, "no_scores", factor, *named)
    call("ratings", "import", ratings, "--store", store)
    reported = call("report", "r", *words, "-o", tmp_path / "r.html")
    assert reported.code == 1
    check_error(reported.error, "no_scores", factor)


def test_a_judge_of_some_items_is_read_beside_people_on_those(
    call: Call, tmp_path: Path
) -> None:
    ratings = rated(tmp_path / "r.csv")
    few = rated(tmp_path / "few.csv", models=("good",))
    asked = ("agree", "--scores", scored(tmp_path / "j.csv"), "--ratings")
    whole = call(*asked, ratings, "--json").document
    assert (
        whole["factors"]["alignment"]["m"]["people"]
        == whole["humans"]["alignment"]["loo_spearman"]
    )
    assert (
        whole["factors"]["alignment"]["m"]["further_rater"]
        == whole["humans"]["alignment"]["further_rater"]
    )
    scores = tmp_path / "good.csv"
    lines = (tmp_path / "j.csv").read_text().splitlines()
    scores.write_text(
        "\n".join([lines[0], *(line for line in lines if line.startswith("good"))])
    )
    part = call("agree", "--scores", scores, "--ratings", ratings, "--json").document
    alone = call("agree", "--scores", scores, "--ratings", few, "--json").document
    assert part["factors"]["alignment"]["m"]["people"] == pytest.approx(
        alone["humans"]["alignment"]["loo_spearman"]
    )
    assert (
        part["humans"]["alignment"]["loo_spearman"]
        == whole["humans"]["alignment"]["loo_spearman"]
    )
    person = part["factors"]["alignment"]["m"]["further_rater"]
    assert (
        person == alone["humans"]["alignment"]["further_rater"]
        and person["items"] == 24
    )


def test_notes_are_of_columns_that_are_shown(call: Call, tmp_path: Path) -> None:
    ratings = tmp_path / "r.csv"
    scores = scored(tmp_path / "j.csv")
    rows = [
        f"{m}-{n},p{r},alignment,{(n + r) % 3 / 2}"
        for m in ("good", "poor")
        for n in range(24)
        for r in range(3)
    ]
    ratings.write_text("\n".join(["item,rater,factor,score", *rows]))
    out = call("agree", "--ratings", ratings, "--scores", scores).out
    assert not any(word in out for word in ("kappa", "MAE", "bias")), (
        "scales differ: no distances are shown"
    )
    shown = call("agree", "--ratings", rated(ratings), "--scores", scores).out
    assert (
        "QWK: quadratic-weighted kappa" in shown and "bias: judge minus people" in shown
    )


def test_an_error_in_scores_names_line_and_field(call: Call, tmp_path: Path) -> None:
    scores = tmp_path / "j.csv"
    scores.write_text("item,judge,factor,score\ngood-1,m,alignment,6/7\n")
    done = call("agree", "--ratings", rated(tmp_path / "r.csv"), "--scores", scores)
    assert (
        done.code == 1
        and f"{os.fspath(scores)}:2: field \"score\": found '6/7'" in done.err
    )


@pytest.mark.skipif(
    not (DATA / "imagenhub_text").is_dir(), reason="the rated edits are not here"
)
def test_real_ratings_give_the_reference_figures(call: Call) -> None:
    expected = {
        "imagenhub_text": {
            "SC": (0.6657, 0.4710, 0.4470, 0.7740),
            "PQ": (0.5733, 0.5319, 0.5008, 0.7155),
        },
        "imagenhub_mask": {
            "SC": (0.6550, 0.5129, 0.5705, 0.7463),
            "PQ": (0.4563, 0.3839, 0.3722, 0.6956),
        },
    }
    for name, factors in expected.items():
        folder = DATA / name
        files = (
            "--ratings",
            folder / "ratings.csv",
            "--scores",
            folder / "judge_scores.csv",
        )
        document = call(
            "agree", *files, "--manifest", folder / "manifest.jsonl", "--json"
        ).document
        for factor, figures in factors.items():
            found = [
                document["factors"][factor][f"{j}_0shot"]["spearman"]
                for j in ("gpt4o", "gpt4v", "gemini")
            ]
            assert [
                *found,
                document["humans"][factor]["loo_spearman"],
            ] == pytest.approx(figures, abs=5e-5)
