"""Check a server against the reward protocol: `python -m editjudge.conformance URL [--token TOKEN] [--json]`.

Works on any server (docs/reward-protocol.md). Exit code 0: every check passed or was skipped with a reason; 1: a check
failed, or the server cannot be reached. The checks send about fifty questions about small images to the server's judge.

`--failing-judge NAME` names a judge of the server that never answers. Without it, the check of how the server handles a
failing judge is skipped.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from editjudge.errors import InputError
from editjudge.rewards import pickled
from editjudge.rewards.protocol import schema

if TYPE_CHECKING:
    from PIL.Image import Image

PATIENCE = 60.0
"""Maximum number of seconds that a judge may take to answer about the edits of one check."""
SLACK = 5.0
"""Seconds by which a response may miss its deadline. The protocol allows one second; the rest allows for busy machines."""
HURRY = 0.05
"""Deadline in seconds that almost no judge can meet."""
LEAST_SPREAD = 1e-3
"""Minimum difference between the best and the worst reward of several edits. If it is smaller, the judge does not
discriminate between edits."""
LEAST_NUMBERS = 4
"""Minimum number of rewards for the comparison with `LEAST_SPREAD`."""
REFUSALS = (400, 413, 422)
"""HTTP statuses of responses to a request that is invalid or too large."""

Json = dict[str, Any]


class ServerAnswer(NamedTuple):
    status: int
    data: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.data, parse_constant=_refuse_constant)
        except ValueError as error:
            raise Failed(
                f"the answer ({self.status}) is not JSON: {error}; it begins {self.data[:80]!r}"
            ) from None


class Failed(Exception):
    """Raised if the server fails a check. The message says what it did and what was expected."""


class Skipped(Exception):
    """Raised if a check does not apply to this server. The message says why."""


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
        self._problems = _validator()
        self.failing_judge = failing_judge
        self.seen: list[Json] = []
        """Every reward with scores that the server has returned."""

    def call(
        self, path: str, data: bytes | None = None, kind: str = "application/json"
    ) -> ServerAnswer:
        headers = {"content-type": kind} if data is not None else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310  (http or https, see above)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE + 30) as response:  # noqa: S310
                return ServerAnswer(response.status, response.read())
        except urllib.error.HTTPError as error:
            return ServerAnswer(error.code, error.read())
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Failed(f"{self._url}{path} cannot be reached: {reason}") from None

    def post(self, request: object) -> ServerAnswer:
        return self.call("/v1/reward", json.dumps(request).encode())

    def ask(self, *edits: Json, **options: object) -> ServerAnswer:
        return self.post({"edits": edits, "deadline": PATIENCE} | options)

    def checked(self, answer: ServerAnswer, count: int = 1) -> list[Json]:
        """Return the rewards in a response. Raise `Failed` unless there are `count` of them."""
        expect_status(answer, 200)
        rewards: list[Json] = self.valid(answer.json(), "Rewards")["rewards"]
        expect(len(rewards) == count, f"{len(rewards)} rewards for {count} edits")
        return rewards

    def rewards(self, *edits: Json, **options: object) -> list[Json]:
        rewards = self.checked(self.ask(*edits, **options), len(edits))
        if "ranking" not in options:
            self.seen += rewards
        return rewards

    def numbers(self, *edits: Json, **options: object) -> list[float | None]:
        return [reward["reward"] for reward in self.rewards(*edits, **options)]

    def valid(self, value: object, kind: str) -> Any:
        for problem in self._problems(value, kind):
            raise Failed(f"not a {kind} of the schema: {problem}")
        return value

    def expect_refusal(self, answer: ServerAnswer, *statuses: int) -> None:
        expect_status(answer, *statuses)
        self.valid(answer.json(), "Refusal")

    def is_refused(self, answer: ServerAnswer) -> bool:
        """Whether a request was refused. Raise `Failed` if a refusal does not have the form that the protocol
        prescribes."""
        if answer.status not in REFUSALS:
            return False
        self.expect_refusal(answer, *REFUSALS)
        return True


def expect(true: bool, message: str) -> None:
    if not true:
        raise Failed(message)


def expect_status(answer: ServerAnswer, *statuses: int) -> None:
    expected = " or ".join(map(str, statuses))
    what = f"status {answer.status} instead of {expected}: {answer.data[:200]!r}"
    expect(answer.status in statuses, what)


def expect_null(reward: Json, what: str) -> None:
    number = reward["reward"]
    expect(number is None, f"the reward of {what} is {number}")


def expect_shares(numbers: Sequence[float | None]) -> None:
    are_shares = all(n is None or 0 <= n <= 1 for n in numbers)
    expect(are_shares, f"the rewards are {numbers}")


def unanswered(reward: Json) -> NoReturn:
    status = reward["status"]
    raise Skipped(
        f"the judge has no answer (status {status}), so that there is nothing to look up again"
    )


# --- edits ----------------------------------------------------------------------------------------------------


@functools.cache
def scene(shift: int = 0, side: int = 160) -> bytes:
    """Return an image of simple shapes. `shift` changes the colour of the house."""
    from PIL import Image, ImageDraw

    image = Image.linear_gradient("L").resize((side, side)).convert("RGB")
    draw = ImageDraw.Draw(image)
    # Grass has a fixed texture, because an image without texture would count as blank.
    for n in range(600):
        x = n * 7919 % side
        y = side * 3 // 5 + n * 104729 % (side * 2 // 5)
        colour = (60 + n * 13 % 90, 110 + n * 31 % 80, 40)
        draw.line((x, y, x + n % 5 - 2, y - n % 9), fill=colour)
    draw.ellipse((side // 8, side // 8, side // 3, side // 3), fill=(250, 220, 80))
    house = ((200 + 37 * shift) % 256, 40, (40 + 90 * shift) % 256)
    draw.rectangle((side // 2, side // 3, side * 7 // 8, side * 5 // 6), fill=house)
    return _png(image)


@functools.cache
def spoiled(step: int) -> bytes:
    """Return the scene with a painted-over area that grows with `step`."""
    from PIL import Image, ImageDraw

    image = Image.open(io.BytesIO(scene(1)))
    draw = ImageDraw.Draw(image)
    side = image.width
    for n in range(step * 40):
        x = n * 6007 % side
        y = n * 3571 % side
        colour = (n * 97 % 256, n * 57 % 256, n * 31 % 256)
        draw.ellipse((x, y, x + 8 + n % 13, y + 8 + n % 7), fill=colour)
    return _png(image)


def _png(image: Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def edit(number: int, **more: object) -> Json:
    return {
        "id": f"edit-{number}",
        "input": _base64(scene()),
        "edited": _base64(scene(number + 1)),
        "instruction": f"Paint the house in colour {number}.",
    } | more


def new_edit(number: int) -> Json:
    """Return an edit with a unique instruction, so that no server has cached an answer."""
    instruction = f"Paint the house in colour {number} ({uuid.uuid4()})."
    return edit(number, instruction=instruction)


# --- checks ---------------------------------------------------------------------------------------------------


def answers_that_it_is_ready(server: Server) -> None:
    """GET /healthz answers 200."""
    answer = server.call("/healthz")
    expect(answer.status == 200, f"GET /healthz answers {answer.status}")


def rewards_come_in_order(server: Server) -> None:
    """Each edit has one reward with its id, in the order of the edits, and the same reward if it is sent alone."""
    sent = [edit(n) for n in (2, 0, 3, 1)]
    together = server.rewards(*sent)
    ids = [reward["id"] for reward in together]
    expect(ids == [e["id"] for e in sent], f"the order is {ids}")
    numbers = [reward["reward"] for reward in together]
    alone = [server.numbers(e)[0] for e in sent]
    same = sorted(map(str, numbers)) == sorted(map(str, alone))
    message = f"the rewards are {numbers} in one request, and {alone} if each edit is sent alone"
    expect(numbers == alone or not same, message)


def rewards_lie_between_0_and_1(server: Server) -> None:
    """A reward is a number from 0 to 1, or null."""
    expect_shares(server.numbers(edit(0), edit(1)))


def different_edits_have_different_rewards(server: Server) -> None:
    """A series of edits, from a correct one to one that is mostly painted over, does not get a constant reward."""
    sent = [
        edit(n, edited=_base64(spoiled(n)), instruction="Paint the house red.")
        for n in range(8)
    ]
    numbers = [number for number in server.numbers(*sent) if number is not None]
    if len(numbers) < LEAST_NUMBERS:
        raise Skipped(f"only {len(numbers)} of {len(sent)} edits have a reward")
    spread = max(numbers) - min(numbers)
    message = f"{len(numbers)} different edits all have the reward {numbers[0]}"
    expect(spread >= LEAST_SPREAD, message)


def a_missing_output_is_null(server: Server) -> None:
    """An edit without an output has no reward and a status other than `ok`. The other edits keep their order."""
    first, missing, last = server.rewards(edit(0), edit(1, edited=None), edit(2))
    expect_null(missing, "an edit without an output")
    ids = (first["id"], last["id"])
    expect(ids == ("edit-0", "edit-2"), "the order of the other edits changed")


def a_broken_picture_is_null(server: Server) -> None:
    """Bytes that are not an image, or are a truncated image, make only their own edit fail."""
    complete = scene(1)
    for broken in (b"these bytes are not an image", complete[: len(complete) // 2]):
        answer = server.ask(edit(0, edited=_base64(broken)), edit(1))
        if not server.is_refused(answer):
            by_id = {reward["id"]: reward for reward in server.checked(answer, 2)}
            expect_null(by_id["edit-0"], "an edit with a broken image")


def a_failing_judge_is_null(server: Server) -> None:
    """The reward is null if the judge does not answer, whatever else is in the request."""
    if server.failing_judge is None:
        raise Skipped("name a judge that never answers with --failing-judge")
    numbers = server.numbers(new_edit(0), new_edit(1), judge=server.failing_judge)
    message = f"the judge does not answer, and the rewards are {numbers}"
    expect(numbers == [None, None], message)


def odd_edits_do_not_break_a_server(server: Server) -> None:
    """An unusual edit has a reward with scores, or null, or is refused. It never causes an internal server error."""
    from PIL import Image

    pixel = _base64(_png(Image.new("RGB", (1, 1), (200, 40, 40))))
    odd: list[Json] = [
        {"edited": pixel},
        {"input": pixel},
        {"input": None},
        {"instruction": ""},
        {"instruction": "{} {0.real} %s %(a)d {{ \\ </s> ``` \" '"},
        {"instruction": "\u0007\u200f\u202e\U0001f3a8 " + "colour " * 2800},
        {"id": "x" * 200},
        {"id": "../../etc/passwd?a=b#c"},
    ]
    for fields in odd:
        sent = edit(0, **fields)
        answer = server.ask(sent)
        if not server.is_refused(answer):
            (reward,) = server.checked(answer)
            expect(
                reward["id"] == sent["id"],
                f"the id {sent['id']} is returned as {reward['id']}",
            )
            server.seen.append(reward)


def a_repeated_edit_has_the_same_reward(server: Server) -> None:
    """An edit sent twice in one request, or again later, has the same reward both times."""
    first, _, second = server.numbers(edit(0), edit(1), edit(0))
    expect(first == second, f"the rewards of the same edit are {first} and {second}")
    (again,) = server.rewards(edit(0))
    if again["reward"] is None:
        unanswered(again)
    expect(
        first == again["reward"],
        f"the reward is {first}, and {again['reward']} if the edit is sent again",
    )


def cached_says_what_was_there_before(server: Server) -> None:
    """`cached` is false for a new edit, true if it is sent again, and false with `fresh`."""
    sent = new_edit(0)
    for options, expected in (({}, False), ({}, True), ({"fresh": True}, False)):
        (reward,) = server.rewards(sent, **options)
        if reward["reward"] is None:
            unanswered(reward)
        cached = reward["cached"]
        expect(cached is expected, f"`cached` is {cached} instead of {expected}")


def a_deadline_holds(server: Server) -> None:
    """The answer arrives by the deadline. An edit that is not judged by then is null, and has a reward later."""
    sent = [new_edit(n) for n in range(3)]
    begun = time.monotonic()
    early = server.numbers(*sent, deadline=HURRY)
    took = time.monotonic() - begun
    message = f"an answer with a deadline of {HURRY} s took {took:.1f} s"
    expect(took < HURRY + SLACK, message)
    late = server.numbers(*sent)
    for before, after in zip(early, late, strict=True):
        message = f"at the deadline a reward is {before}, and later {after}"
        expect(before is None or before == after, message)
    if None in early:
        return
    # The same number for all edits, now and later, may be a default that the server stored for late answers.
    if len(set(early)) == 1:
        fresh = server.numbers(*sent, fresh=True)
        is_made_up = all(number not in (None, early[0]) for number in fresh)
        message = f"at the deadline all rewards are {early[0]}, and with `fresh` they are {fresh}"
        expect(not is_made_up, message)
    raise Skipped(f"the judge answers within {HURRY} s, so that nothing was late")


def strict_answers_503(server: Server) -> None:
    """With `strict`, the HTTP status is 503 if a reward is null. The body is the same."""
    answer = server.ask(edit(0), edit(1, edited=None), strict=True)
    expect_status(answer, 503)
    server.valid(answer.json(), "Rewards")


def groups_are_compared(server: Server) -> None:
    """Each reward has its rank in its group, and with `ranking` the rewards are ranks from 0 to 1."""
    sent = [edit(n, group="g") for n in range(3)]
    plain = server.rewards(*sent)
    ranked = server.rewards(*sent, ranking="scores")
    for reward in plain:
        group = reward["group"] or {}
        is_group = group.get("name") == "g" and group.get("size") == 3
        expect(is_group, f"the group is {reward['group']}")
    pairs = [
        (reward["reward"], rank["reward"])
        for reward, rank in zip(plain, ranked, strict=True)
        if reward["reward"] is not None
    ]
    if len(pairs) < 2:
        raise Skipped("fewer than two edits of the group have a reward")
    expect_shares([rank for _, rank in pairs])
    wrong = [(a, b) for a in pairs for b in pairs if a[0] > b[0] and a[1] <= b[1]]
    expect(not wrong, f"reward and rank disagree: {wrong[:1]}")


def groups_are_ranked_by_pairs(server: Server) -> None:
    """With `ranking: pairs` a reward is the share of comparisons in its group that the edit won. An edit without an
    output is not compared. A server whose judge cannot compare refuses with 422."""
    same = {"group": "g", "instruction": "Paint the house in another colour."}
    sent = [edit(n, **same) for n in range(3)] + [edit(3, **same, edited=None)]
    answer = server.ask(*sent, ranking="pairs")
    if answer.status == 422:
        server.expect_refusal(answer, 422)
        raise Skipped("the server does not compare pairs")
    *members, missing = server.rewards(*sent, ranking="pairs")
    expect_null(missing, "an edit without an output")
    numbers = [reward["reward"] for reward in members]
    expect_shares(numbers)
    if None in numbers:
        status = members[numbers.index(None)]["status"]
        raise Skipped(f"a comparison has no verdict (status {status})")
    # Each comparison is worth one point, and each edit takes part in two.
    message = f"three edits share three comparisons, and their rewards are {numbers}"
    expect(abs(sum(numbers) - 1.5) < 1e-6, message)
    # The edits of this group have different instructions.
    other = server.ask(edit(0, group="g"), edit(1, group="g"), ranking="pairs")
    server.expect_refusal(other, 422)


def samples_say_how_certain(server: Server) -> None:
    """With several samples, a reward has a standard error."""
    answer = server.ask(edit(0), samples=2)
    if answer.status == 422:
        raise Skipped("the server accepts only one sample")
    (reward,) = server.checked(answer)
    if reward["reward"] is None:
        raise Skipped(f"the judge has no second answer (status {reward['status']})")
    expect(reward["uncertainty"] is not None, "`uncertainty` is null with two samples")


def what_is_not_known_is_refused(server: Server) -> None:
    """An unknown field, judge or version, or an image given as a path, is refused with 422, with `where` and `what`."""
    requests: list[object] = [
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
        server.expect_refusal(server.post(request), 422)


def what_is_not_json_is_refused(server: Server) -> None:
    """A truncated body or NaN is refused with a 4xx status."""
    for data in (b"", b'{"edits": [', b'{"edits": [], "deadline": NaN}', b"\xff\xfe"):
        server.expect_refusal(server.call("/v1/reward", data), 400, 422)


def a_pickle_is_refused(server: Server) -> None:
    """A pickle is refused with 415, even if its content would be valid as JSON, and also if it is sent as JSON."""
    for value in (None, {"edits": [edit(0)]}):
        data = pickled.dumps(value)
        for kind in ("application/octet-stream", "application/x-pickle"):
            server.expect_refusal(server.call("/v1/reward", data, kind), 415)
        server.expect_refusal(server.call("/v1/reward", data), 400, 415, 422)


def too_many_edits_are_refused(server: Server) -> None:
    """Too many edits are refused before any is judged, with 413 (or 429 if the server is full)."""
    answer = server.post({"edits": [{"edited": None}] * 10_000})
    server.expect_refusal(answer, 413, 422, 429)


def multipart_means_the_same(server: Server) -> None:
    """Images sent as multipart parts get the same rewards as images in base64."""
    sent = edit(0)
    images = {role: base64.b64decode(sent.pop(role)) for role in ("input", "edited")}
    request = json.dumps({"edits": [sent], "deadline": PATIENCE}).encode()
    parts = {"request": request}
    parts |= {f"edits.0.{role}": data for role, data in images.items()}
    boundary = uuid.uuid4().hex
    body = b""
    for name, data in parts.items():
        disposition = f'form-data; name="{name}"; filename="{name}"'
        head = f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n"
        body += head.encode() + data + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    kind = f"multipart/form-data; boundary={boundary}"
    _expect_same(server, server.call("/v1/reward", body, kind))


def msgpack_means_the_same(server: Server) -> None:
    """Images sent as bytes in msgpack get the same rewards as images in base64. Support for msgpack is optional."""
    try:
        msgpack = import_module("msgpack")
    except ModuleNotFoundError:
        raise Skipped("the package msgpack is not installed on this machine") from None
    sent = edit(0)
    sent |= {role: base64.b64decode(sent[role]) for role in ("input", "edited")}
    body = msgpack.packb({"edits": [sent], "deadline": PATIENCE})
    answer = server.call("/v1/reward", body, "application/msgpack")
    if answer.status == 415:
        raise Skipped("the server does not read msgpack")
    _expect_same(server, answer)


def _expect_same(server: Server, answer: ServerAnswer) -> None:
    """Raise `Failed` unless the reward equals the reward of edit 0 when sent as JSON."""
    (reward,) = server.checked(answer)
    (plain,) = server.numbers(edit(0))
    expect(
        reward["reward"] == plain,
        f"the reward is {reward['reward']} instead of {plain}",
    )


def the_schema_is_served(server: Server) -> None:
    """GET /v1/reward/schema returns the published schema of the same version. Serving it is optional."""
    answer = server.call("/v1/reward/schema")
    if answer.status == 404:
        raise Skipped("the server does not serve the schema")
    served = answer.json().get("$id")
    expect(served == schema()["$id"], f"the server has another schema: {served}")


def every_number_has_scores_behind_it(server: Server) -> None:
    """In all answers so far, a number comes with a score for every factor without an abstention. Only a degenerate
    output may have a 0 without scores, and then it has a reason."""
    numbered = [
        reward
        for reward in server.seen
        if reward["reward"] is not None
        and (reward["scores"] or reward["reward"] != 0 or not reward["reasons"])
    ]
    factors = set(
        itertools.chain.from_iterable(reward["scores"] for reward in numbered)
    )
    for reward in numbered:
        about = f"the reward of {reward['id']} is {reward['reward']}"
        missing = factors - {*reward["scores"], *reward["abstained"]}
        expect(bool(reward["scores"]), f"{about}, and it has no scores")
        expect(not missing, f"{about} without a score of {sorted(missing)}")


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
    """Run all checks in order and yield the result of each."""
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
                f"the answer does not have the expected form: {type(error).__name__}: {error}",
            )
        else:
            yield Result(name, "passed")


def _validator() -> Callable[[object, str], Iterator[str]]:
    """Return a function that validates a value against the published schema and yields its problems."""
    try:
        from jsonschema.validators import Draft202012Validator
    except ModuleNotFoundError:
        raise InputError(
            "the conformance kit needs jsonschema: pip install 'editjudge[conformance]'"
        ) from None
    published = schema()
    del published["anyOf"]

    def problems(value: object, kind: str) -> Iterator[str]:
        validator = Draft202012Validator(published | {"$ref": f"#/$defs/{kind}"})
        for error in validator.iter_errors(value):
            where = ".".join(map(str, error.absolute_path)) or "the answer"
            yield f"{where}: {error.message[:300]}"

    return problems


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def main(arguments: Sequence[str] | None = None) -> int:
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
    options = parser.parse_args(arguments)
    results: list[Result] = []
    try:
        for result in run(options.url, options.token, options.failing_judge):
            results.append(result)
            if not options.json:
                note = f": {result.message}" if result.message else ""
                print(f"{result.outcome:8} {result.check}{note}", flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    failed = sum(result.outcome == "failed" for result in results)
    summary = "conforms"
    if failed:
        summary = f"{len(results) - failed} of {len(results)} checks passed"
    if options.json:
        checks = [asdict(result) for result in results]
        summary = json.dumps({"conforms": not failed, "checks": checks}, indent=2)
    print(summary)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
