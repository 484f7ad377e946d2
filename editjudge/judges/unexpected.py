"""An exception that nobody expected, on one edit alone: a reason for the status `error`, a traceback for the log."""

from __future__ import annotations

import errno
import logging
import traceback
from typing import Any

from editjudge.errors import WorldError
from editjudge.judges.body import cleaned, without_keys
from editjudge.rubrics.contract import Remark

CODE = "unexpected_exception"

_NOT_OF_ONE_EDIT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE})
"""A full or read-only disk, and no more files to open: the next edit would fare no better."""

_logged: set[tuple[str, str, int]] = set()
"""Where exceptions came from whose traceback is in the log: ten thousand edits with the same one need it once."""


def unexpected(error: Exception, about: str, judge: object = None) -> Remark:
    """The reason for a judgement, with the exception's name. Raises `WorldError` where it is not of this edit alone.

    Neither the reason nor the log holds a key: none that the `judge` knows of, nor what looks like one.
    """
    if isinstance(error, OSError) and error.errno in _NOT_OF_ONE_EDIT:
        raise WorldError(f"{about}: {type(error).__name__}: {error}") from error
    endpoint: Any = getattr(judge, "endpoint", None)
    name, words = type(error).__name__, cleaned(_redacted(endpoint, _message(error)))
    reason = f"{name}: {words}" if words else name
    origin = traceback.extract_tb(error.__traceback__)[-1:]
    place = (name, origin[0].filename, origin[0].lineno or 0) if origin else (name, "", 0)
    text = f"{about}: {reason}"
    if place not in _logged:
        _logged.add(place)
        trace = "".join(traceback.format_exception(error))
        text += "\n" + without_keys(_redacted(endpoint, trace))
    logging.getLogger(__name__).error("%s", text)
    return Remark(CODE, reason)


def _redacted(endpoint: Any, text: str) -> str:
    return str(endpoint.redacted(text, error=True)) if endpoint else text


def _message(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # an exception of a plug-in may fail even at this
        return ""
