"""Requests of httpx with a timeout for a busy machine: its own 5 seconds are too short when tests run side by side."""

from __future__ import annotations

from functools import partial

import httpx

_SECONDS = 60.0

Client = partial(httpx.Client, timeout=_SECONDS)
AsyncClient = partial(httpx.AsyncClient, timeout=_SECONDS)
get = partial(httpx.get, timeout=_SECONDS)
post = partial(httpx.post, timeout=_SECONDS)
put = partial(httpx.put, timeout=_SECONDS)
delete = partial(httpx.delete, timeout=_SECONDS)
request = partial(httpx.request, timeout=_SECONDS)
