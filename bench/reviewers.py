"""A reviewer in front of `editjudge serve`: filters and pages tables, opens edits, pictures and evidence, rates, errs.

Every answer is held against what was asked; the first that is something else ends the reviewer with `Wrong`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import html
import math
import random
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from urllib.parse import unquote, urlencode

import aiohttp

Seen = Callable[[str, float], None]
"""Takes what was asked for (`page`, `picture`, `evidence`) and the seconds that it took."""
MODELS = ("m1", "m2")
_QUERIES: tuple[dict[str, str], ...] = (
    {},
    {"q": "car 7"},
    {"model": "m1"},
    {"status": "ok"},
    {"status": "failed"},
    {"sort": "-unchanged_regions"},
    {"sort": "spread", "model": "m2"},
    {"factor": "seamlessness", "least": "3", "most": "6"},
    {"disputed": "1", "sort": "model"},
)


class Wrong(Exception):
    """An answer that is not what was asked for."""


class Over(Exception):
    """It is time to go home."""


@dataclass
class Reviewer:
    session: aiohttp.ClientSession
    """Of their own: a browser keeps its cookies and its connections to itself."""
    url: str
    name: str
    rng: random.Random
    known: Collection[str]
    """Digests of every picture that there is."""
    seen: Seen
    pause: tuple[float, float] = (0.0, 0.0)
    """Seconds, from and to, that go by before the next page."""
    until: float = math.inf
    """No page is asked for after this moment of the monotonic clock."""
    sent: dict[tuple[str, int, str], float | None] = field(default_factory=dict)
    """Rater, place and factor to the score that was sent, if any."""

    async def work(self, until: float, pause: tuple[float, float]) -> None:
        """Whatever comes to mind, for so long."""
        self.until = until
        self.pause = pause
        with contextlib.suppress(Over):
            while True:
                await self.rng.choices(
                    (self.look, self.rate, self.glance, self.err), (8, 4, 1, 1)
                )[0]()

    async def tour(self) -> None:
        """One of everything."""
        for query in _QUERIES:
            await self._table(1, query)
        await self._evidence("/runs/1/edits/g0")
        for does in (self.look, self.rate, self.glance, self.err, self.oversee):
            await does()

    # --- looking --------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Into a table, perhaps its next page, and from there into edits, with their pictures."""
        run = self.rng.choice((1, 2))
        text = await self._table(run, self.rng.choice(_QUERIES))
        if following := re.search(r'rel="next" href="([^"]+)"', text):
            text = await self._page(html.unescape(following[1]), "Page 2 of")
        edits = re.findall(rf'class="said" href="(/runs/{run}/edits/[^"]+)"', text)
        for edit in self.rng.sample(edits, min(2, len(edits))):
            await self._edit(run, html.unescape(edit))
            if run == 1 and self.rng.random() < 0.25:
                await self._evidence(html.unescape(edit))

    async def _table(self, run: int, query: dict[str, str]) -> str:
        path = f"/runs/{run}" + (f"?{urlencode(query)}" if query else "")
        text = await self._page(path, '<table class="edits')
        for words in re.findall(r'<p class="said instruction">(.*?)</p>', text):
            self._hold("q" not in query or query["q"] in words, path, words)
        for words in re.findall(r'<small class="said">(.*?)</small></th>', text):
            self._hold("model" not in query or query["model"] in words, path, words)
        return text

    async def _edit(self, run: int, path: str) -> None:
        item = unquote(path.partition("?")[0].rpartition("/")[2])
        text = await self._page(path, f"<title>{html.escape(item)} ·")
        # Side by side, wiped, blinking and as a difference: all are made in the browser, of these two.
        sources = re.findall(rf'<img src="(/runs/{run}/images/[^"]+)"', text)
        self._hold(len(sources) == 2, path, f"{len(sources)} pictures")
        for source in sources:
            digest = hashlib.sha256(
                await self._picture(html.unescape(source), "picture")
            ).hexdigest()
            self._hold(digest in self.known, source, "another picture")
            await self._picture(f"{html.unescape(source)}?side=160", "picture")

    async def _evidence(self, path: str) -> None:
        """Pictures of what was measured."""
        at, _, item = path.partition("/edits/")
        await self._picture(
            f"{at}/evidence/{self.rng.choice(('change', 'boundary'))}/{item}",
            "evidence",
        )

    async def glance(self) -> None:
        """At the list of runs, and at one model beside the other."""
        await self._page("/", "gallery", "rewards-")
        a, b = MODELS
        await self._page(f"/compare?a=1&b=1&a_model={a}&b_model={b}", "<table", a, b)

    async def oversee(self) -> None:
        """What whoever set up the study looks at."""
        await self._page("/rate/1/progress", "Agreement")
        await self._get("/ratings.csv", "page", "text/csv")

    # --- rating ---------------------------------------------------------------------------------------------------

    async def rate(self) -> None:
        """Sign in, go on where it stopped, look at both pictures, answer everything, and find it kept."""
        await self._post("/rate/name", {"name": self.name}, 303)
        text = await self._page("/rate/1", "</html>")
        if done := re.search(r"All (\d+) of your edits are rated", text):
            text = await self._page(
                f"/rate/1/{self.rng.randint(1, int(done[1]))}", 'id="answers"'
            )
        place = re.search(r'src="/rate/1/(\d+)/images/', text)
        if not place:
            raise Wrong(f"/rate/1: neither a form nor the end of one: {text[:300]}")
        path = f"/rate/1/{place[1]}"
        for role in ("input", "edited"):
            await self._picture(f"{path}/images/{role}", "picture")
        form = {
            factor: self.rng.choice(
                re.findall(rf'type="radio" name="{factor}" value="(-?\d*)"', text)
            )
            for factor in re.findall(r'data-factor="([^"]+)"', text)
        }
        await self._post(path, form, 204)
        self.sent |= {
            (self.name, int(place[1]), factor): float(v) if v else None
            for factor, v in form.items()
        }
        page = await self._page(path, 'id="answers"')
        for factor, value in form.items():
            self._hold(
                f'name="{factor}" value="{value}" checked' in page,
                path,
                f"{factor} {value} is not kept",
            )

    async def err(self) -> None:
        """Each mistake is told, and changes nothing."""
        await asyncio.sleep(self.rng.uniform(*self.pause))
        for path in (
            "/runs/1/edits/nobody",
            "/runs/1/images/edited/nobody",
            "/runs/9",
            "/rate/1/99999",
        ):
            await self._get(path, "page", "text/html", 404)
        await self._post("/rate/new", {"run": "nobody"}, 400)
        if any(number == 1 for _, number, _ in self.sent):
            factor = next(factor for _, number, factor in self.sent if number == 1)
            await self._post("/rate/1/1", {factor: "9"}, 422)

    # --- asking ---------------------------------------------------------------------------------------------------

    async def _page(self, path: str, *words: str) -> str:
        await asyncio.sleep(self.rng.uniform(*self.pause))
        if time.monotonic() > self.until:
            raise Over
        text = (await self._get(path, "page", "text/html")).decode()
        for word in words:
            self._hold(word in text, path, f"without {word!r}")
        return text

    async def _picture(self, path: str, kind: str) -> bytes:
        data = await self._get(path, kind, "image/")
        self._hold(
            data.startswith((b"\xff\xd8\xff", b"\x89PNG", b"RIFF")), path, "no picture"
        )
        return data

    async def _get(self, path: str, kind: str, media: str, status: int = 200) -> bytes:
        started = time.monotonic()
        async with self.session.get(
            self.url + path, headers={"accept": f"{media},*/*"}
        ) as response:
            data = await response.read()
        self.seen(kind, time.monotonic() - started)
        content_type = response.headers.get("content-type", "")
        self._hold(
            response.status == status and content_type.startswith(media),
            path,
            f"{response.status} {content_type} {data[:300]!r}",
        )
        return data

    async def _post(self, path: str, form: dict[str, str], status: int) -> None:
        async with self.session.post(
            self.url + path, data=form, allow_redirects=False
        ) as response:
            answer = await response.text()
        self._hold(response.status == status, path, f"{response.status} {answer[:300]}")

    def _hold(self, right: bool, path: str, problem: str) -> None:
        if not right:
            raise Wrong(f"{path}: {problem}")
