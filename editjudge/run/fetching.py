"""Pictures from http(s) addresses, for runs that allow it."""

from __future__ import annotations

import urllib.error
import urllib.request

from editjudge.errors import ImageError
from editjudge.media.image import BOUNDS

_TIMEOUT = 30.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Where a picture comes from is what the manifest says, not what a server says."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


def fetch(url: str) -> bytes:
    """What the address holds, bounded in size and time."""
    opener = urllib.request.build_opener(_NoRedirect)
    request = urllib.request.Request(url, headers={"User-Agent": "editjudge"})  # noqa: S310  (scheme checked below)
    if not url.lower().startswith(("http://", "https://")):
        raise ImageError(f"{url[:80]}: only http and https addresses are fetched")
    try:
        with opener.open(request, timeout=_TIMEOUT) as response:
            data: bytes = response.read(BOUNDS.max_bytes + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise ImageError(f"{url[:80]}: cannot be fetched: {getattr(error, 'reason', error)}") from None
    return data
