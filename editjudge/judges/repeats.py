"""Repeats of one question that wait at the same time: one request brings replies for all of them, so that pictures are
sent once. Each reply is a judgement of its own, with its own key."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from editjudge.judgement import SchemaMode, Usage
from editjudge.judges.messages import Reply

MOST = 8
"""Replies of one request. More would hold up the first of them, and lose more with a request that fails."""


@dataclass(frozen=True)
class SharedReply:
    """What another repeat's request brought for this one."""

    reply: Reply
    seconds: float | None
    mode: SchemaMode
    replies: int
    """That the request brought."""


@dataclass(eq=False)
class Waiting:
    """A repeat that is to be asked."""

    shared: asyncio.Future[SharedReply | None] | None = None
    """Set once another repeat asks for this one too; None comes where that brought nothing, and it asks itself."""
    mates: list[Waiting] = field(default_factory=list)
    """Those that this one asks for."""

    def release(self) -> None:
        """Let those that have no reply ask for themselves."""
        for mate in self.mates:
            if mate.shared and not mate.shared.done():
                mate.shared.set_result(None)
        self.mates = []

    def hand_out(self, reply: Reply, seconds: float | None, mode: SchemaMode) -> Reply:
        """Give the others their replies, each with its share of the tokens, and take one's own."""
        if not reply.others and not self.mates:
            return reply
        shares = _shares(reply.usage, 1 + len(reply.others))
        for mate, other, usage in zip(self.mates, reply.others, shares[1:], strict=False):
            if mate.shared and not mate.shared.done():
                mate.shared.set_result(SharedReply(dataclasses.replace(other, usage=usage), seconds, mode, len(shares)))
        self.release()
        return dataclasses.replace(reply, usage=shares[0], others=())


def _shares(usage: Usage, replies: int) -> list[Usage]:
    """The question was read once, for the first of them; servers do not say how long each reply was."""
    output, thought = (divmod(count or 0, replies) for count in (usage.output_tokens, usage.reasoning_tokens))
    each = Usage(
        input_tokens=0 if usage.input_tokens is not None else None,
        output_tokens=output[0] if usage.output_tokens is not None else None,
        cached_tokens=0 if usage.cached_tokens is not None else None,
        reasoning_tokens=thought[0] if usage.reasoning_tokens is not None else None,
    )
    rest = Usage(usage.input_tokens, output[1] if output[1] else None, usage.cached_tokens, thought[1] or None)
    return [each + rest, *[each] * (replies - 1)]


class RepeatGroups:
    """Who waits to ask the same question."""

    def __init__(self, most: int) -> None:
        self.most = most
        """Replies that may be requested at once; 1 from the moment that a server refuses or ignores it."""
        self._waiting: dict[Hashable, list[Waiting]] = {}

    @contextmanager
    def waiting(self, question: Hashable) -> Iterator[Waiting]:
        one = Waiting()
        line = self._waiting.setdefault(question, [])
        line.append(one)
        try:
            yield one
        finally:
            one.release()
            if one in line:
                line.remove(one)
            if not line and self._waiting.get(question) is line:
                del self._waiting[question]

    def begin(self, question: Hashable, one: Waiting) -> None:
        """It is about to ask: it asks for those that wait behind it too, unless another one asks for it."""
        if one.shared is not None:
            return
        line = self._waiting[question]
        line.remove(one)
        one.mates = line[: self.most - 1]
        del line[: self.most - 1]
        for mate in one.mates:
            mate.shared = asyncio.get_running_loop().create_future()
