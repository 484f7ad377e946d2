"""What stands before every route: tokens, other sites, other names, too much; and hostile words and paths behind it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from starlette.testclient import TestClient

from editjudge.judgement import Exchange, Judgement, Task
from editjudge.rubrics.files import resolve
from editjudge.rubrics.verdict import Remark
from editjudge.store.records import Item
from editjudge.store.store import Store
from editjudge.web.app import create
from editjudge.web.guard import cookie_value
from editjudge.web.site import Site
from editjudge.web.values import edit_url
from tests import patient
from tests.running.made import picture
from tests.web.served import Served, serving

TOKEN = "a-token-that-nobody-guesses"
PAGES = (
    "/",
    "/runs/1",
    "/runs/1/edits/brush-2%2F0",
    "/compare?a=1&b=2",
    "/static/style.css",
    "/nowhere",
    "/healthz",
)


# --- headers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, "/runs/1/images/edited/brush-2%2F0"])
def test_every_answer_forbids_inline_script_frames_and_guessing(
    sample: Served, path: str
) -> None:
    headers = patient.get(sample.url + path).headers
    policy = dict(
        part.strip().split(" ", 1)
        for part in headers["content-security-policy"].split(";")
        if " " in part.strip()
    )
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_pages_hold_no_inline_script_or_style(sample: Served) -> None:
    for path in PAGES:
        text = patient.get(sample.url + path, headers={"accept": "text/html"}).text
        assert (
            "<script>" not in text and " style=" not in text and " onclick=" not in text
        )


# --- who asks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("[::1]:8427", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_without_a_token_only_loopback_names_are_answered(
    sample: Served, host: str, status: int
) -> None:
    assert patient.get(sample.url, headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_a_post_from_another_sites_page_is_refused(
    sample: Served, headers: dict[str, str], status: int
) -> None:
    answer = patient.post(
        f"{sample.url}/sign-in",
        data={"token": "x"},
        headers=headers,
        follow_redirects=True,
    )
    assert answer.status_code == status


def test_our_own_origin_may_post(sample: Served) -> None:
    headers = {"origin": sample.url}
    assert (
        patient.post(
            f"{sample.url}/sign-in", data={"token": "x"}, headers=headers
        ).status_code
        == 303
    )


def test_a_body_that_is_too_large_is_not_read(sample: Served) -> None:
    assert (
        patient.post(f"{sample.url}/sign-in", content=b"x" * (2**20 + 1)).status_code
        == 413
    )

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 2**15

    assert patient.post(f"{sample.url}/sign-in", content=endless()).status_code in (
        303,
        413,
    )


# --- token ----------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    Store.open(tmp_path / "store.db").close()
    with serving(tmp_path / "store.db", judge="measured", token=TOKEN) as served:
        yield served


@pytest.mark.parametrize(
    "path", ["/", "/runs/1", "/v1/judge", "/openapi.json", "/nowhere", "/rate"]
)
def test_with_a_token_nothing_is_told_without_it(guarded: Served, path: str) -> None:
    answer = patient.get(guarded.url + path)
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    for wrong in ("x", TOKEN[:-1], TOKEN + "x", "ü"):
        headers = {b"authorization": f"Bearer {wrong}".encode()}
        assert patient.get(guarded.url + path, headers=headers).status_code == 401
    assert (
        patient.get(guarded.url + path, cookies={"editjudge": TOKEN}).status_code == 401
    )


def test_a_bearer_or_a_cookie_is_enough(guarded: Served) -> None:
    assert (
        patient.get(
            guarded.url, headers={"authorization": f"Bearer {TOKEN}"}
        ).status_code
        == 200
    )
    assert (
        patient.get(guarded.url, cookies={"editjudge": cookie_value(TOKEN)}).status_code
        == 200
    )
    assert patient.get(f"{guarded.url}/healthz").status_code == 200


def test_signing_in_sets_a_cookie_that_no_script_reads(
    page: Page, guarded: Served
) -> None:
    page.goto(f"{guarded.url}/?model=x")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    cookie = page.context.cookies()[0]
    assert (
        cookie["httpOnly"]
        and cookie["sameSite"] == "Lax"
        and TOKEN not in cookie["value"]
    )
    assert page.evaluate("document.cookie") == "" and TOKEN not in page.url


def test_a_wrong_token_is_told_in_words(guarded: Served) -> None:
    answer = patient.post(f"{guarded.url}/sign-in", data={"token": "wrong"})
    assert (
        answer.status_code == 401
        and "not the token" in answer.text
        and "set-cookie" not in answer.headers
    )


@pytest.mark.parametrize(
    "goal",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\n/b",
    ],
)
def test_signing_in_leads_nowhere_else(guarded: Served, goal: str) -> None:
    answer = patient.post(
        f"{guarded.url}/sign-in", params={"next": goal}, data={"token": TOKEN}
    )
    assert answer.headers["location"] == "/"


# --- hostile content ------------------------------------------------------------------------------------------

EVIL = (
    '"><script>window.hurt = 1</script><img src=x onerror="window.hurt = 2"><svg onload=window.hurt=3>'
    '</title></textarea></select><a href="javascript:window.hurt=4">x</a><style>body{display:none}</style>'
    "{{ 7 * 7 }}\u202e\x00\ud800'`${window.hurt=5}"
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A run whose every word was written by somebody who means harm."""
    folder = tmp_path_factory.mktemp("hostile") / 'x"><script>window.hurt=6<'
    folder.mkdir()
    file = folder / "a'\"><img src=x onerror=window.hurt=7>.png"
    file.write_bytes(picture("a"))
    (folder / "drawn.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg"><script>window.hurt=8</script></svg>'
    )
    (folder / "page.png").write_text("<html><script>window.hurt=9</script>")
    (folder.parent / "outside.png").write_bytes(picture("secret"))
    (folder / "link.png").symlink_to(folder.parent / "outside.png")
    (folder / "gone.png").write_bytes(picture("gone"))
    sources = {
        EVIL: file, "..": file, "a/../b?c#d%2F": file, "svg": folder / "drawn.svg", "html": folder / "page.png",
        "outside": folder.parent / "outside.png", "link": folder / "link.png", "dots": f"{folder}/../outside.png",
        "relative": "page.png", "url": "http://127.0.0.1:9/x.png", "passwd": "/etc/passwd", "folder": folder,
    }  # fmt: skip
    (rubric,) = resolve(["fidelity"])
    with Store.open(folder.parent / "store.db") as store:
        spec = {
            "manifest": str(folder / "m.jsonl"),
            "rubrics": {"fidelity": rubric.hash},
            "judges": [EVIL, "b"],
        }
        run = store.open_run(EVIL, spec)
        store.add_rubrics([rubric])
        items = [
            Item(
                name,
                EVIL,
                EVIL,
                None,
                EVIL,
                EVIL,
                {
                    role: {"source": str(s), "digest": None}
                    for role in ("input", "edited")
                },
                {EVIL: EVIL},
            )
            for name, s in sources.items()
        ]
        store.add_items(run, items)
        store.add_tasks(
            run, [Task(item.item, "fidelity", EVIL, 0, "k") for item in items]
        )
        scores = {factor.key: 7 for factor in rubric.factors}
        said = (
            Exchange(
                EVIL,
                EVIL,
                EVIL,
                model=EVIL,
                request_id=EVIL,
                reasons=(Remark(EVIL, EVIL, EVIL),),
            ),
        )
        remarks = (Remark(EVIL, EVIL, EVIL),)
        store.write(
            [
                Judgement(
                    "k", "ok", EVIL, "fidelity", rubric.hash, scores=scores, justifications=dict.fromkeys(scores, EVIL),
                    exchanges=said, violations=remarks, notes=remarks, evidence={EVIL: EVIL}, prepared={EVIL: EVIL},
                )
            ]
        )  # fmt: skip
        store.mark(run, "finished", {"statuses": {EVIL: 1}})
    with serving(folder.parent / "store.db", judge="measured") as served:
        yield served


def test_hostile_words_are_shown_as_text_and_nothing_runs(
    page: Page, hostile: Served
) -> None:
    for path in (
        "/",
        "/runs/1",
        f"/runs/1?{httpx.QueryParams({'q': EVIL[:40], 'sort': EVIL[:40], 'model': EVIL[:90]})}",
    ):
        page.goto(hostile.url + path)
        assert page.evaluate(
            "[window.hurt ?? null, document.querySelectorAll('main script, main style, main svg').length]"
        ) == [None, 0]
    page.goto(hostile.url + edit_url(EVIL, 1))
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("w")
    page.wait_for_timeout(200)
    assert page.evaluate(
        "[window.hurt ?? null, document.querySelectorAll('main script, main style, main svg').length]"
    ) == [None, 0]
    assert page.locator("a[href^='javascript']").count() == 0
    shown = page.locator("#words").locator("..").text_content() or ""
    assert (
        shown.count("<script>window.hurt = 1</script>") >= 5 and "{{ 7 * 7 }}" in shown
    )
    assert page.locator(".pane:visible img").count() >= 1


@pytest.mark.parametrize("item", [EVIL, "..", "a/../b?c#d%2F"])
def test_an_id_of_any_characters_has_an_address(hostile: Served, item: str) -> None:
    assert patient.get(hostile.url + edit_url(item, 1)).status_code == 200
    answer = patient.get(hostile.url + edit_url(item, 1, "images/edited"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")


@pytest.mark.parametrize(
    "item",
    [
        "svg",
        "html",
        "outside",
        "link",
        "dots",
        "relative",
        "url",
        "passwd",
        "folder",
        "nobody",
    ],
)
def test_only_pictures_in_the_runs_own_folder_are_served(
    hostile: Served, item: str
) -> None:
    answer = patient.get(f"{hostile.url}/runs/1/images/edited/{item}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert (
        patient.get(f"{hostile.url}/runs/1/evidence/change/{item}").status_code == 404
    )
    page = patient.get(f"{hostile.url}/runs/1/edits/{item}")
    assert page.status_code == (404 if item == "nobody" else 200)


@pytest.mark.parametrize("role", ["mask", "metadata", "..%2f..", "__class__"])
def test_only_roles_that_the_edit_names_are_served(hostile: Served, role: str) -> None:
    assert (
        patient.get(hostile.url + edit_url(EVIL, 1, f"images/{role}")).status_code
        == 404
    )


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
    ],
)
def test_static_files_are_those_of_the_folder(hostile: Served, path: str) -> None:
    assert (
        patient.get(
            httpx.URL(hostile.url).copy_with(raw_path=path.encode())
        ).status_code
        == 404
    )


def test_formats_that_browsers_do_not_show_are_encoded_again_and_turned_upright(
    tmp_path: Path,
) -> None:
    from PIL import Image

    Image.new("RGB", (4, 2), "red").save(tmp_path / "a.tiff")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20), "red").save(tmp_path / "b.jpg", exif=exif)
    with Store.open(tmp_path / "s.db") as store:
        run = store.open_run("r", {"manifest": str(tmp_path / "m.jsonl")})
        images = {
            "input": {"source": str(tmp_path / "a.tiff")},
            "edited": {"source": str(tmp_path / "b.jpg")},
        }
        store.add_items(run, [Item("x", images=images)])
        client = TestClient(create(Site(store)), base_url="http://127.0.0.1")
        assert (
            client.get("/runs/1/images/input/x").headers["content-type"] == "image/png"
        )
        turned = client.get("/runs/1/images/edited/x")
        tag = turned.headers["etag"]
        assert (
            client.get(
                "/runs/1/images/edited/x", headers={"if-none-match": tag}
            ).status_code
            == 304
        )
        assert Image.open(io.BytesIO(turned.content)).size == (20, 40)
        absent = client.get("/runs/2")
        assert absent.status_code == 404 and "2" in absent.json()["error"]


def test_values_that_no_calendar_and_no_scale_has_are_shown(tmp_path: Path) -> None:
    (rubric,) = resolve(["fidelity"])
    with Store.open(tmp_path / "s.db") as store:
        store.add_rubrics([rubric])
        run = store.open_run(
            "imported", {"judges": ["m"], "rubrics": {rubric.name: rubric.hash}}
        )
        store.append(run, [Item("a", "m", "t", "a")])
        store.append(run, [Task("a", rubric.name, "m", 0, "k")])
        scores = {factor.key: 10**12 for factor in rubric.factors}
        store.write(
            [
                Judgement(
                    "k",
                    "ok",
                    "m",
                    rubric.name,
                    rubric.hash,
                    scores=scores,
                    created=1e300,
                )
            ]
        )
        client = TestClient(create(Site(store)), base_url="http://127.0.0.1")
        for path in ("/", "/runs/1", "/runs/1/edits/a", "/runs/1?sort=-spread"):
            assert client.get(path).status_code == 200
        assert "at an unknown time" in client.get("/runs/1/edits/a").text
