"""A rater's link: it opens one study for one person, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from editjudge.store.ratings import add_ratings, read_ratings
from editjudge.store.store import Store
from editjudge.store.studies import (
    assignments_of,
    create_study,
    find_study,
    invite,
    invited,
    list_invitations,
    remove_answers,
)
from tests import patient
from tests.running.made import editjudge
from tests.web.sample import MODELS, made
from tests.web.served import Served, serving

TOKEN = "reviewers-only-0123456789"
SERVICE = "programs-only-0123456789"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two studies of the runs spring and summer."""
    made_at = made(tmp_path / "edits")
    with Store.open(made_at) as store:
        for number, run in enumerate(store.runs()):
            rubrics = list(run.spec["rubrics"].values())[:1]
            create_study(
                store,
                f"{run.name} by brush",
                run.id,
                rubrics,
                overlap=3,
                quota=4,
                controls=number,
            )
    return made_at


@pytest.fixture
def served(place: Path) -> Iterator[Served]:
    with serving(place, judge="measured", token=TOKEN, service_token=SERVICE) as server:
        yield server


def link(served: Served, rater: str = "ann", study: int = 1) -> str:
    return f"/rate/{invite(served.store, find_study(served.store, study), rater)}"


def go(served: Served, path: str, **more: object) -> httpx.Response:
    with patient.Client(
        base_url=served.url,
        follow_redirects=True,
        timeout=60,
        headers={"accept": "text/html"},
    ) as client:
        data = {name: str(value) for name, value in more.items()}
        return client.post(path, data=data) if data else client.get(path)


def test_a_link_opens_its_study_without_a_token_and_answers_count_as_its_owner_s(
    served: Served,
) -> None:
    home = link(served)
    page = go(served, home)
    assert page.status_code == 200 and page.url.path == f"{home}/1"
    factor = re.findall(r'data-factor="(\w+)"', page.text)[0]
    assert go(served, f"{home}/1/images/edited").headers["content-type"] == "image/jpeg"
    assert go(served, f"{home}/1", **{factor: 5}).url.path == f"{home}/2"
    assert [row[1:4] for row in read_ratings(served.store) if row[1] == "ann"] == [
        ("ann", factor, 5.0)
    ]


def test_a_rater_learns_neither_run_nor_model_nor_file_nor_others(
    served: Served,
) -> None:
    home = link(served)
    go(served, home)
    for path in (home, *(f"{home}/{n}" for n in range(1, 5))):
        text = go(served, path).text
        assert not re.search(
            rf"spring|summer|{'|'.join(MODELS)}|vision-1|looker|Ada|Grace|\.jpg|/runs",
            text,
        )
        assert "Study 1" in text and not re.search(r'href="/(rate)?"', text)
    answer = go(served, f"{home}/1/images/edited")
    assert not {"etag", "last-modified", "content-disposition"} & set(answer.headers)


def test_a_link_opens_nothing_else(served: Served) -> None:
    home = link(served)
    go(served, home)
    paths = [
        "/",
        "/runs/1",
        "/compare",
        "/rate",
        "/rate/new",
        "/rate/1",
        "/rate/1/1",
        "/rate/1/progress",
    ]
    paths += ["/ratings.csv", "/openapi.json", "/v1/judge"]
    paths += ["/runs/1/images/edited/brush-2%2F0", "/rate/1/1/images/edited"]
    with patient.Client(
        headers={"cookie": f"rater=ann; editjudge={home[6:]}"}
    ) as client:
        for asked in (way + path for path in paths for way in ("", home, f"{home}/..")):
            answer = client.send(
                httpx.Request(
                    "GET", httpx.URL(served.url).copy_with(raw_path=asked.encode())
                )
            )
            to_itself = answer.headers.get("location", "").endswith(home)
            assert answer.status_code in (401, 404) or to_itself, (
                asked,
                answer.status_code,
            )
    assert go(served, f"{home}/99").status_code == 404
    assert go(served, f"{home}/1/images/mask").status_code == 404
    assert (
        patient.post(
            f"{served.url}/v1/judge", headers={"authorization": f"Bearer {home[6:]}"}
        ).status_code
        == 401
    )


def test_a_link_is_valid_until_it_is_withdrawn_or_replaced(
    served: Served, place: Path
) -> None:
    first = link(served)
    other = link(served, "bob")
    second = link(served)
    assert [go(served, path).status_code for path in (first, second, other)] == [
        404,
        200,
        200,
    ]
    assert "no longer valid" in go(served, first).text
    assert editjudge("ratings", "revoke", "1", "ann", "--store", place).code == 0
    assert [go(served, path).status_code for path in (second, other)] == [404, 200]
    assert go(served, f"{second}/1", alignment=5).status_code == 404
    assert editjudge("ratings", "revoke", "1", "ann", "--store", place).code == 2


def test_the_store_has_no_link_that_could_be_used(served: Served, place: Path) -> None:
    code = link(served)[6:]
    with Store.open(place, readonly=True) as store:
        kept = list_invitations(store)
        assert invited(store, code) and invited(store, code[:-1] + "~") is None
    assert [(one.study_id, one.rater, one.revoked) for one in kept] == [
        (1, "ann", None)
    ]
    assert not any(
        code.encode() in path.read_bytes()
        for path in place.parent.glob(f"{place.name}*")
    )


def test_nobody_rates_by_name_as_somebody_who_has_a_link(served: Served) -> None:
    link(served)
    headers = {"authorization": f"Bearer {TOKEN}", "cookie": "rater=ann"}
    assert patient.get(f"{served.url}/rate/1", headers=headers).status_code == 403
    assert patient.get(f"{served.url}/rate/2", headers=headers).status_code == 303


def test_a_study_without_a_name_is_not_called_after_its_run(served: Served) -> None:
    setup = {
        "run": "1",
        "rubric": "fidelity",
        "quota": "3",
        "overlap": "1",
        "controls": "0",
    }
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert (
        patient.post(f"{served.url}/rate/new", data=setup, headers=headers).status_code
        == 303
    )
    assert find_study(served.store, 3).name == "Study 3"


def test_invite_prints_a_link_and_links_lists_who_has_one(place: Path) -> None:
    made_link = editjudge("ratings", "invite", "spring by brush", "Ann B.", "--server", "https://r.example/", "--json",
                          "--store", place)  # fmt: skip
    assert re.fullmatch(
        r"https://r\.example/rate/[\w-]{24}", json.loads(made_link.out)["link"]
    )
    assert editjudge("ratings", "invite", "nowhere", "Ann", "--store", place).code == 2
    listed = json.loads(editjudge("ratings", "links", "--json", "--store", place).out)[
        "links"
    ]
    assert [(row["study_id"], row["rater"], row["revoked"]) for row in listed] == [
        (1, "Ann B.", None)
    ]


def test_a_rater_s_answers_can_be_deleted_for_one_study_or_for_good(
    served: Served, place: Path
) -> None:
    store = served.store
    for study in (1, 2):
        home = link(served, study=study)
        text = go(served, home).text
        factors = re.findall(r'data-factor="(\w+)"', text)
        go(served, f"{home}/1", **dict.fromkeys(factors, 4))
    add_ratings(
        store,
        [
            ("elsewhere", "ann", "alignment", 3.0),
            ("elsewhere", "bob", "alignment", 3.0),
        ],
    )
    total = len([row for row in read_ratings(store) if row[1] == "ann"])
    # nobody says yes
    assert (
        editjudge(
            "ratings", "rm", "--rater", "ann", "--study", "2", "--store", place
        ).code
        == 1
    )
    assert len([row for row in read_ratings(store) if row[1] == "ann"]) == total
    counted = remove_answers(store, "ann", find_study(store, 2), dry_run=True)
    removed = editjudge(
        "ratings",
        "rm",
        "--rater",
        "ann",
        "--study",
        "2",
        "--yes",
        "--json",
        "--store",
        place,
    )
    assert json.loads(removed.out)["answers"] == counted.answers == len(factors)
    assert (
        assignments_of(store, find_study(store, 2), "ann") == []
        and assignments_of(store, find_study(store, 1), "ann") != []
    )
    assert (
        editjudge("ratings", "rm", "--rater", "ann", "--yes", "--store", place).code
        == 0
    )
    assert {row[1] for row in read_ratings(store)} == {"Ada", "Grace", "bob"}
    assert (
        editjudge("ratings", "rm", "--rater", "ann", "--yes", "--store", place).code
        == 2
    )


def test_a_reviewer_makes_a_link_in_the_browser_and_a_rater_uses_it(
    page: Page, served: Served
) -> None:
    page.goto(f"{served.url}/rate/1/progress")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Invite").fill("Ann")
    page.get_by_role("button", name="Make a link").click()
    made_link = page.get_by_label("Link of Ann", exact=True).input_value()
    expect(page.get_by_role("button", name="Withdraw the link of Ann")).to_be_visible()
    browser = page.context.browser
    assert browser
    other = browser.new_context()
    rater = other.new_page()
    rater.goto(made_link)
    expect(rater.get_by_role("img").first).to_be_visible()
    rater.keyboard.press("5")
    expect(rater.locator("#saved")).to_have_text("saved")
    other.close()
    page.get_by_role("button", name="Withdraw the link of Ann").click()
    expect(page.get_by_text("withdrawn")).to_be_visible()
    assert [row[1] for row in read_ratings(served.store)].count("Ann") == 1
