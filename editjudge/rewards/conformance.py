"""Check a server against the reward protocol: `python -m editjudge.conformance URL [--token TOKEN] [--json]`.

Works on any server (docs/reward-protocol.md). Exit code 0: every check passed or was skipped with a reason; 1: one
failed, or the server cannot be reached. The server's judge is asked some fifty questions about small images.

`--failing-judge NAME` names a judge that the server offers and that never answers. It is the only way to see what a
server makes of a judge's failure if its own judge does not fail; without it that check is skipped.
"""

from __future__ import annotations

import argparse
import base64
import functools
import io
import itertools
import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple

from editjudge.errors import InputError
from editjudge.rewards import pickled
from editjudge.rewards.protocol import schema

PATIENCE = 60.0
"""Seconds that a judge may take for the edits of one check."""
SLACK = 5.0
"""Seconds by which an answer may miss its deadline: the protocol allows one, and machines are busy."""
HURRY = 0.05
"""Seconds that hardly any judge needs less than."""
LEAST_SPREAD = 1e-3
"""Difference between the best and the worst of several edits below which a judge tells nothing apart."""
LEAST_NUMBERS = 4
"""Rewards that must be there for such a comparison."""


class ServerAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.data, parse_constant=_no_constant)
        except ValueError as error:
            raise Failed(
                f"the answer ({self.status}) is not JSON: {error}; it begins {self.data[:80]!r}"
            ) from None


class Failed(Exception):
    """The server does not pass a check; the message says what it did and what was expected."""


class Skipped(Exception):
    """A check does not apply to this server; the message says why."""


@dataclass(frozen=True)
class Result:
    check: str
    outcome: Literal["passed", "failed", "skipped"]
    message: str = ""


class Server:
    """The server under test."""

    def __init__(
        self, url: str, token: str | None = None, failing_judge: str | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(
                f"{url}: expected the address of a server, such as http://127.0.0.1:8427"
            )
        self._url = url.rstrip("/")
        self._token = token
        self._validator = _validator()
        self.failing_judge = failing_judge
        self.seen: list[dict[str, Any]] = []
        """Every reward by scores that the server gave so far."""

    def call(
        self, path: str, data: bytes | None = None, kind: str = "application/json"
    ) -> ServerAnswer:
        headers = {"content-type": kind} if data is not None else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310  (http or https, see above)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE + 30) as response:  # noqa: S310
                return ServerAnswer(
                    response.status, dict(response.headers.items()), response.read()
                )
        except urllib.error.HTTPError as error:
            return ServerAnswer(error.code, dict(error.headers.items()), error.read())
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Failed(f"{self._url}{path} cannot be reached: {reason}") from None

    def reward(self, *edits: dict[str, Any], **options: Any) -> ServerAnswer:
        request = {"edits": list(edits), "deadline": PATIENCE} | options
        return self.call("/v1/reward", json.dumps(request).encode())

    def rewards(self, *edits: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
        answer = self.reward(*edits, **options)
        expect(
            answer.status == 200,
            f"status {answer.status} instead of 200: {answer.data[:300]!r}",
        )
        rewards: list[dict[str, Any]] = self.valid(answer.json(), "Rewards")["rewards"]
        expect(
            len(rewards) == len(edits), f"{len(rewards)} rewards of {len(edits)} edits"
        )
        if options.get("ranking", "none") == "none":
            self.seen += rewards
        return rewards

    def valid(self, value: Any, kind: str) -> Any:
        for problem in self._validator(value, kind):
            raise Failed(f"not a {kind} of the schema: {problem}")
        return value

    def refusal(self, answer: ServerAnswer, *statuses: int) -> None:
        expected = " or ".join(map(str, statuses))
        expect(
            answer.status in statuses,
            f"status {answer.status} instead of {expected}: {answer.data[:200]!r}",
        )
        self.valid(answer.json(), "Refusal")


def expect(true: bool, message: str) -> None:
    if not true:
        raise Failed(message)


# --- pictures -------------------------------------------------------------------------------------------------


@functools.cache
def picture(shift: int = 0, side: int = 160) -> bytes:
    """A scene of shapes; `shift` paints the house in another colour."""
    from PIL import Image, ImageDraw

    image = Image.linear_gradient("L").resize((side, side)).convert("RGB")
    draw = ImageDraw.Draw(image)
    # grass, always the same: without texture a picture is taken for a blank one
    for n in range(600):
        x = n * 7919 % side
        y = side * 3 // 5 + n * 104729 % (side * 2 // 5)
        draw.line(
            (x, y, x + n % 5 - 2, y - n % 9),
            fill=(60 + n * 13 % 90, 110 + n * 31 % 80, 40),
        )
    draw.ellipse((side // 8, side // 8, side // 3, side // 3), fill=(250, 220, 80))
    house = ((200 + 37 * shift) % 256, 40, (40 + 90 * shift) % 256)
    draw.rectangle((side // 2, side // 3, side * 7 // 8, side * 5 // 6), fill=house)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def edit(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"edit-{number}",
        "input": base64.b64encode(picture()).decode(),
        "edited": base64.b64encode(picture(number + 1)).decode(),
        "instruction": f"Paint the house in colour {number}.",
    } | more


def new_edit(number: int, **more: Any) -> dict[str, Any]:
    """An edit that no server has an answer to yet."""
    return (
        edit(
            number, instruction=f"Paint the house in colour {number} ({uuid.uuid4()})."
        )
        | more
    )


@functools.cache
def spoiled(step: int) -> str:
    """A picture of which less and less is left, from none to most of it painted over."""
    from PIL import Image, ImageDraw

    image = Image.open(io.BytesIO(picture(1)))
    draw = ImageDraw.Draw(image)
    side = image.width
    for n in range(step * 40):
        x = n * 6007 % side
        y = n * 3571 % side
        draw.ellipse(
            (x, y, x + 8 + n % 13, y + 8 + n % 7),
            fill=(n * 97 % 256, n * 57 % 256, n * 31 % 256),
        )
    data = io.BytesIO()
    image.save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


# --- checks ---------------------------------------------------------------------------------------------------


def answers_that_it_is_ready(server: Server) -> None:
    """GET /healthz is 200."""
    answer = server.call("/healthz")
    expect(answer.status == 200, f"GET /healthz answers {answer.status}")


def rewards_come_in_order(server: Server) -> None:
    """One reward for each edit, in the order of the edits, each with the id of its edit; an edit has alone the reward
    that it has among others."""
    sent = [edit(n) for n in (2, 0, 3, 1)]
    together = server.rewards(*sent)
    ids = [reward["id"] for reward in together]
    expect(ids == [one["id"] for one in sent], f"the order is {ids}")
    numbers = [reward["reward"] for reward in together]
    alone = [server.rewards(one)[0]["reward"] for one in sent]
    is_shuffled = numbers != alone and sorted(map(str, numbers)) == sorted(
        map(str, alone)
    )
    expect(
        not is_shuffled, f"together the rewards are {numbers}, and one by one {alone}"
    )


def rewards_lie_between_0_and_1(server: Server) -> None:
    """A reward is a number from 0 to 1, or null."""
    numbers = [reward["reward"] for reward in server.rewards(edit(0), edit(1))]
    expect(all(n is None or 0 <= n <= 1 for n in numbers), f"the rewards are {numbers}")


def different_edits_have_different_rewards(server: Server) -> None:
    """An edit as it was asked for and one of which little is left do not have the same reward as all between them: a
    constant is no judgement."""
    sent = [
        edit(n, edited=spoiled(n), instruction="Paint the house red.") for n in range(8)
    ]
    numbers = [
        reward["reward"]
        for reward in server.rewards(*sent)
        if reward["reward"] is not None
    ]
    if len(numbers) < LEAST_NUMBERS:
        raise Skipped(f"only {len(numbers)} of {len(sent)} edits have a reward")
    expect(
        max(numbers) - min(numbers) >= LEAST_SPREAD,
        f"{len(numbers)} different edits all have {numbers[0]}",
    )


def a_missing_output_is_null(server: Server) -> None:
    """An edit without an output has no reward and a status that is not `ok`; the others keep their places."""
    first, missing, last = server.rewards(edit(0), edit(1, edited=None), edit(2))
    expect(
        missing["reward"] is None,
        f"the reward of an edit without an output is {missing['reward']}",
    )
    expect(
        (first["id"], last["id"]) == ("edit-0", "edit-2"), "the others changed places"
    )


def a_broken_picture_is_null(server: Server) -> None:
    """Bytes that are no picture, or half of one, fail their own edit, and no other."""
    whole = picture(1)
    for broken in (b"these bytes are no picture", whole[: len(whole) // 2]):
        answer = server.reward(
            edit(0, edited=base64.b64encode(broken).decode()), edit(1)
        )
        if answer.status in (400, 413, 422):
            server.refusal(answer, 400, 413, 422)
            continue
        rewards = {
            reward["id"]: reward["reward"]
            for reward in server.valid(answer.json(), "Rewards")["rewards"]
        }
        expect(
            rewards["edit-0"] is None,
            f"the reward of a broken picture is {rewards['edit-0']}",
        )


def a_failing_judge_is_null(server: Server) -> None:
    """A judge that does not answer leaves null, whatever else is in the request."""
    if server.failing_judge is None:
        raise Skipped("name a judge that never answers with --failing-judge")
    rewards = server.rewards(new_edit(0), new_edit(1), judge=server.failing_judge)
    numbers = [reward["reward"] for reward in rewards]
    expect(
        numbers == [None, None],
        f"the judge does not answer, and the rewards are {numbers}",
    )


def odd_edits_do_not_break_a_server(server: Server) -> None:
    """An edit that judges and their servers stumble over is answered, with null or a number that has scores behind it, or
    refused; it is never an error of the server."""
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (1, 1), (200, 40, 40)).save(data, "PNG")
    pixel = base64.b64encode(data.getvalue()).decode()
    odd = [
        edit(0, edited=pixel),
        edit(0, input=pixel),
        edit(0, input=None),
        edit(0, instruction=""),
        edit(0, instruction="{} {0.real} %s %(a)d {{ \\ </s> ``` \" '"),
        edit(0, instruction="\u0007\u200f\u202e\U0001f3a8 " + "colour " * 2800),
        edit(0, id="x" * 200),
        edit(0, id="../../etc/passwd?a=b#c"),
    ]
    for sent in odd:
        answer = server.reward(sent)
        if answer.status in (400, 413, 422):
            server.refusal(answer, 400, 413, 422)
            continue
        expect(
            answer.status == 200,
            f"status {answer.status} for {_short(sent)}: {answer.data[:200]!r}",
        )
        rewards = server.valid(answer.json(), "Rewards")["rewards"]
        ids = [reward["id"] for reward in rewards]
        expect(ids == [sent["id"]], f"the id {sent['id']} comes back as {ids}")
        server.seen += rewards


def a_repeated_edit_has_the_same_reward(server: Server) -> None:
    """The same edit twice in one request is one question, and asked again it has the same answer."""
    rewards = server.rewards(edit(0), edit(1), edit(0))
    expect(
        rewards[0]["reward"] == rewards[2]["reward"],
        f"{rewards[0]['reward']} and {rewards[2]['reward']}",
    )
    (again,) = server.rewards(edit(0))
    if again["reward"] is None:
        raise Skipped(
            f"the judge has no answer (status {again['status']}), so that nothing can be kept"
        )
    expect(
        rewards[0]["reward"] == again["reward"],
        f"{rewards[0]['reward']}, and asked again {again['reward']}",
    )


def cached_says_what_was_there_before(server: Server) -> None:
    """`cached` is false for an edit that was never asked about, true when it is asked again, and false with `fresh`."""
    sent = new_edit(0)
    for options, expected in (({}, False), ({}, True), ({"fresh": True}, False)):
        (reward,) = server.rewards(sent, **options)
        if reward["reward"] is None:
            raise Skipped(
                f"the judge has no answer (status {reward['status']}), so that nothing can be kept"
            )
        expect(
            reward["cached"] is expected,
            f"`cached` is {reward['cached']} instead of {expected}",
        )


def a_deadline_holds(server: Server) -> None:
    """An answer comes by the deadline; what is not judged by then is null, and has its own number later."""
    sent = [new_edit(n) for n in range(3)]
    begun = time.monotonic()
    early = [reward["reward"] for reward in server.rewards(*sent, deadline=HURRY)]
    took = time.monotonic() - begun
    expect(
        took < HURRY + SLACK,
        f"an answer with a deadline of {HURRY} s took {took:.1f} s",
    )
    late = [reward["reward"] for reward in server.rewards(*sent)]
    changed = [
        (a, b) for a, b in zip(early, late, strict=True) if a is not None and a != b
    ]
    expect(
        not changed,
        f"at the deadline a reward is {changed and changed[0][0]}, and later {changed and changed[0][1]}",
    )
    if None in early:
        return
    # The same number for all, then and later, may be what a server keeps of a judge that was too late.
    if len(set(early)) == 1:
        fresh = [reward["reward"] for reward in server.rewards(*sent, fresh=True)]
        made_up = all(number is not None and number != early[0] for number in fresh)
        expect(
            not made_up,
            f"at the deadline all rewards are {early[0]}, and asked again they are {fresh}",
        )
    raise Skipped(f"the judge answers within {HURRY} s, so that nothing was late")


def strict_answers_503(server: Server) -> None:
    """With `strict`, a null makes the answer 503, with the same body."""
    answer = server.reward(edit(0), edit(1, edited=None), strict=True)
    expect(answer.status == 503, f"status {answer.status} instead of 503")
    server.valid(answer.json(), "Rewards")


def groups_are_compared(server: Server) -> None:
    """Each reward says where it stands among the edits of its group, and ranks are 0 to 1."""
    sent = [edit(n, group="g") for n in range(3)]
    plain = server.rewards(*sent)
    ranked = server.rewards(*sent, ranking="scores")
    for reward in plain:
        group = reward["group"]
        expect(
            group is not None and group["name"] == "g" and group["size"] == 3,
            f"the group is {group}",
        )
    numbers = [reward["reward"] for reward in plain if reward["reward"] is not None]
    if len(numbers) < 2:
        raise Skipped("fewer than two edits of the group have a reward")
    known = [
        (p["reward"], r["reward"])
        for p, r in zip(plain, ranked, strict=True)
        if p["reward"] is not None
    ]
    expect(
        all(0 <= rank <= 1 for _, rank in known),
        f"the ranks are {[rank for _, rank in known]}",
    )
    wrong = [(a, b) for a in known for b in known if a[0] > b[0] and a[1] <= b[1]]
    expect(not wrong, f"reward and rank disagree: {wrong[:1]}")


def groups_are_ranked_by_pairs(server: Server) -> None:
    """With `ranking: pairs` a reward is the share of the comparisons in its group that it won, and an edit without an
    output is compared with nobody; a server whose judge compares nothing refuses with 422."""
    same = {"group": "g", "instruction": "Paint the house in another colour."}
    sent = [edit(n, **same) for n in range(3)] + [edit(3, **same, edited=None)]
    answer = server.reward(*sent, ranking="pairs")
    if answer.status == 422:
        server.refusal(answer, 422)
        raise Skipped("the server does not compare pairs")
    *members, missing = server.rewards(*sent, ranking="pairs")
    expect(
        missing["reward"] is None,
        f"the reward of an edit without an output is {missing['reward']}",
    )
    numbers = [reward["reward"] for reward in members]
    expect(all(n is None or 0 <= n <= 1 for n in numbers), f"the rewards are {numbers}")
    if None in numbers:
        raise Skipped(
            f"a comparison has no verdict (status {members[numbers.index(None)]['status']})"
        )
    # Every comparison hands out one point, and each edit has two of them.
    expect(
        abs(sum(numbers) - 1.5) < 1e-6,
        f"three edits share three comparisons, and their rewards are {numbers}",
    )
    # two instructions
    other = server.reward(edit(0, group="g"), edit(1, group="g"), ranking="pairs")
    server.refusal(other, 422)


def samples_say_how_certain(server: Server) -> None:
    """With several samples, a reward has a standard error."""
    answer = server.reward(edit(0), samples=2)
    if answer.status == 422:
        raise Skipped("the server takes one sample alone")
    (reward,) = server.valid(answer.json(), "Rewards")["rewards"]
    if reward["reward"] is None:
        raise Skipped(f"the judge has no second answer (status {reward['status']})")
    expect(reward["uncertainty"] is not None, "two samples, and `uncertainty` is null")


def what_is_not_known_is_refused(server: Server) -> None:
    """A field, a judge or a version that is not known, and a picture by its path: 422 with where and what."""
    requests = [
        {"edits": [edit(0)], "colour": "red"},
        {"edits": [edit(0, colour="red")]},
        {"edits": [edit(0)], "judge": f"nobody/{uuid.uuid4()}"},
        {"edits": [edit(0)], "protocol": 1000},
        {"edits": [edit(0, edited="/etc/hostname")]},
        {"edits": [edit(0, edited="http://127.0.0.1/a.png")]},
        {"edits": []},
        {"edits": "all"},
        [],
    ]
    for request in requests:
        server.refusal(server.call("/v1/reward", json.dumps(request).encode()), 422)


def what_is_not_json_is_refused(server: Server) -> None:
    """A cut-off body and NaN are 4xx."""
    for data in (b"", b'{"edits": [', b'{"edits": [], "deadline": NaN}', b"\xff\xfe"):
        server.refusal(server.call("/v1/reward", data), 400, 422)


def a_pickle_is_refused(server: Server) -> None:
    """A pickle is 415, also one of a request that would be taken as JSON; called JSON it is not read either."""
    for value in (None, {"edits": [edit(0)]}):
        data = pickled.dumps(value)
        for kind in ("application/octet-stream", "application/x-pickle"):
            server.refusal(server.call("/v1/reward", data, kind), 415)
        server.refusal(server.call("/v1/reward", data), 400, 415, 422)


def too_many_edits_are_refused(server: Server) -> None:
    """More edits than a server takes are refused before anything is judged, with 413 (or 429 where it is full)."""
    request = {"edits": [{"edited": None}] * 10_000}
    server.refusal(
        server.call("/v1/reward", json.dumps(request).encode()), 413, 422, 429
    )


def multipart_means_the_same(server: Server) -> None:
    """Pictures as parts of their own mean what base64 means."""
    sent = edit(0)
    texts = {
        name: value for name, value in sent.items() if name not in ("input", "edited")
    }
    parts = [("request", json.dumps({"edits": [texts], "deadline": PATIENCE}).encode())]
    parts += [
        (f"edits.0.{role}", base64.b64decode(sent[role]))
        for role in ("input", "edited")
    ]
    answer = server.call("/v1/reward", *_multipart(parts))
    _same(server, sent, answer)


def msgpack_means_the_same(server: Server) -> None:
    """Pictures as bytes in msgpack mean what base64 means; a server need not read it."""
    try:
        msgpack = import_module("msgpack")
    except ModuleNotFoundError:
        raise Skipped("the package msgpack is not installed here") from None
    sent = edit(0)
    raw = sent | {role: base64.b64decode(sent[role]) for role in ("input", "edited")}
    answer = server.call(
        "/v1/reward",
        msgpack.packb({"edits": [raw], "deadline": PATIENCE}),
        "application/msgpack",
    )
    if answer.status == 415:
        raise Skipped("the server does not read msgpack")
    _same(server, sent, answer)


def the_schema_is_served(server: Server) -> None:
    """GET /v1/reward/schema is the published schema of the same version; a server need not serve it."""
    answer = server.call("/v1/reward/schema")
    if answer.status == 404:
        raise Skipped("the server does not serve the schema")
    expect(
        answer.json().get("$id") == schema()["$id"],
        f"another schema: {answer.json().get('$id')}",
    )


def every_number_has_scores_behind_it(server: Server) -> None:
    """In all the answers so far, a number comes with a score of every factor that does not abstain. Only an output that
    is no edit may have a 0 without scores, and then a reason says what was seen."""
    numbers = [reward for reward in server.seen if reward["reward"] is not None]
    judged = [
        reward
        for reward in numbers
        if reward["scores"] or reward["reward"] != 0 or not reward["reasons"]
    ]
    factors = set(itertools.chain.from_iterable(reward["scores"] for reward in judged))
    for reward in judged:
        missing = factors - {*reward["scores"], *reward["abstained"]}
        expect(
            bool(reward["scores"]),
            f"the reward of {reward['id']} is {reward['reward']}, and it has no scores",
        )
        expect(
            not missing,
            f"the reward of {reward['id']} is {reward['reward']} without a score of {sorted(missing)}",
        )


CHECKS: Sequence[Callable[[Server], None]] = (
    answers_that_it_is_ready,
    rewards_come_in_order,
    rewards_lie_between_0_and_1,
    different_edits_have_different_rewards,
    a_missing_output_is_null,
    a_broken_picture_is_null,
    a_failing_judge_is_null,
    odd_edits_do_not_break_a_server,
    a_repeated_edit_has_the_same_reward,
    cached_says_what_was_there_before,
    a_deadline_holds,
    strict_answers_503,
    groups_are_compared,
    groups_are_ranked_by_pairs,
    samples_say_how_certain,
    what_is_not_known_is_refused,
    what_is_not_json_is_refused,
    a_pickle_is_refused,
    too_many_edits_are_refused,
    multipart_means_the_same,
    msgpack_means_the_same,
    the_schema_is_served,
    every_number_has_scores_behind_it,
)


def run(
    url: str, token: str | None = None, failing_judge: str | None = None
) -> Iterator[Result]:
    """The result of every check, one after the other."""
    server = Server(url, token, failing_judge)
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            check(server)
        except Skipped as reason:
            yield Result(name, "skipped", str(reason))
        except Failed as reason:
            yield Result(name, "failed", str(reason))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            yield Result(
                name,
                "failed",
                f"an answer of another form: {type(error).__name__}: {error}",
            )
        else:
            yield Result(name, "passed")


# --- bodies, schema -------------------------------------------------------------------------------------------


def _same(server: Server, sent: dict[str, Any], answer: ServerAnswer) -> None:
    expect(
        answer.status == 200,
        f"status {answer.status} instead of 200: {answer.data[:200]!r}",
    )
    (reward,) = server.valid(answer.json(), "Rewards")["rewards"]
    (plain,) = server.rewards(sent)
    expect(
        reward["reward"] == plain["reward"],
        f"{reward['reward']} instead of {plain['reward']}",
    )


def _short(sent: Mapping[str, Any]) -> str:
    """The edit without its pictures, for a message."""
    return str(
        {
            name: str(value)[:80]
            for name, value in sent.items()
            if name not in ("input", "edited")
        }
    )


def _multipart(parts: Sequence[tuple[str, bytes]]) -> tuple[bytes, str]:
    boundary = uuid.uuid4().hex
    body = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n'.encode()
        + data
        + b"\r\n"
        for name, data in parts
    )
    return (
        body + f"--{boundary}--\r\n".encode(),
        f"multipart/form-data; boundary={boundary}",
    )


def _validator() -> Callable[[Any, str], Iterator[str]]:
    try:
        from jsonschema.validators import Draft202012Validator
    except ModuleNotFoundError:
        raise InputError(
            "the conformance kit needs jsonschema: pip install 'editjudge[conformance]'"
        ) from None
    published = schema()

    def problems(value: Any, kind: str) -> Iterator[str]:
        whole = {name: part for name, part in published.items() if name != "anyOf"} | {
            "$ref": f"#/$defs/{kind}"
        }
        for error in Draft202012Validator(whole).iter_errors(value):
            yield f"{'.'.join(map(str, error.absolute_path)) or 'the answer'}: {error.message[:300]}"

    return problems


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m editjudge.conformance", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "url", metavar="URL", help="the server, such as http://127.0.0.1:8427"
    )
    parser.add_argument("--token", help="sent as Authorization: Bearer")
    parser.add_argument(
        "--failing-judge",
        metavar="NAME",
        help="a judge that the server offers and that never answers",
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on stdout"
    )
    given = parser.parse_args(words)
    results: list[Result] = []
    try:
        for result in run(given.url, given.token, given.failing_judge):
            results.append(result)
            if not given.json:
                note = f": {result.message}" if result.message else ""
                print(f"{result.outcome:8} {result.check}{note}", flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    failed = sum(result.outcome == "failed" for result in results)
    if given.json:
        print(
            json.dumps(
                {
                    "conforms": not failed,
                    "checks": [asdict(result) for result in results],
                },
                indent=2,
            )
        )
    else:
        print(
            f"{len(results) - failed} of {len(results)} checks passed"
            if failed
            else "conforms"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
