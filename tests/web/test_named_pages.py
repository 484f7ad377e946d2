"""Pages of edits with further pictures and texts, and what a server refuses to ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from editjudge.errors import UsageError
from editjudge.rewards.protocol import Terms
from editjudge.store.store import Store
from editjudge.web.app import create
from editjudge.web.site import Site
from tests.faults import raises
from tests.running.made import run, write_manifest
from tests.running.test_named_inputs import RUBRIC, row, server

from .served import serving


def test_named_pictures_and_texts_are_on_the_review_page_and_in_the_form(
    tmp_path: Path,
) -> None:
    (tmp_path / "subjects.yaml").write_text(RUBRIC)
    manifest = write_manifest(tmp_path, [row(tmp_path, explanation="A <dog>.")])
    with server():
        run(manifest, tmp_path / "s.db", rubrics=(str(tmp_path / "subjects.yaml"),))
    with serving(tmp_path / "s.db", "measured") as served:
        page = served.client.get(f"{served.url}/runs/1/edits/e").text
        assert "References[2]" in page
        (address, *_) = re.findall(r'/runs/1/images/references[^"]*', page)
        assert (
            served.client.get(served.url + address.replace("&amp;", "&")).headers[
                "content-type"
            ]
            == "image/png"
        )
        study = {
            "run": "1",
            "rubric": "subjects",
            "overlap": "1",
            "quota": "1",
            "controls": "0",
        }
        home = {"origin": served.url}
        made = served.client.post(f"{served.url}/rate/new", data=study, headers=home)
        assert made.status_code == 303, made.text
        served.client.post(
            f"{served.url}/rate/name", data={"name": "ann"}, headers=home
        )
        form = served.client.get(f"{served.url}/rate/1", follow_redirects=True).text
        assert form.count("<figure") == 3
        assert "A &lt;dog&gt;." in form
        picture = served.client.get(f"{served.url}/rate/1/1/images/references[2]")
        assert picture.status_code == 200


@pytest.mark.parametrize(
    ("more", "code", "named"),
    [
        ("when: edit_type == add\n", "asked_by_a_run_alone", "`when`"),
        ("samples: 2\n", "asked_by_a_run_alone", "`samples`"),
        ("", "input_not_sent", "explanation"),
    ],
)
def test_a_server_refuses_what_it_cannot_ask_of_every_edit(
    more: str, code: str, named: str, tmp_path: Path
) -> None:
    (tmp_path / "subjects.yaml").write_text(RUBRIC + more)
    terms = Terms(rubrics=(str(tmp_path / "subjects.yaml"),))
    with (
        Store.open(tmp_path / "s.db") as store,
        raises(UsageError, code, named),
    ):
        create(Site(store, settings={"rewards": terms}))
