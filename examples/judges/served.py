"""A judge that is a server: the reward protocol in forty lines of the standard library, for a scorer of yours.

    python examples/judges/served.py 8500 &
    editjudge run edits.jsonl --judge http:http://127.0.0.1:8500 --rubric quality

docs/reward-protocol.md has the protocol; `python -m editjudge.conformance URL` checks a server.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image, ImageStat

FACTORS = {
    "quality": (
        "scale_realism spatial_relationship texture_and_detail image_quality "
        "color_and_lighting seamlessness"
    ).split()
}


def reward(edit: dict[str, Any], rubric: str) -> dict[str, Any]:
    """Score an edit. A failure is null with a status, never a number."""
    answer = {"id": edit.get("id"), "reward": None, "scores": None}
    try:
        image = Image.open(io.BytesIO(base64.b64decode(edit["edited"])))
        contrast = ImageStat.Stat(image.convert("L")).stddev[0]
    except (KeyError, OSError, ValueError):
        return answer | {"status": "bad_image"}
    score = 1 + round(6 * min(contrast / 64, 1))  # your model here
    scores = dict.fromkeys(FACTORS[rubric], score)
    return answer | {"status": "ok", "reward": (score - 1) / 6, "scores": scores}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = json.loads(body)
        (rubric,) = request.get("rubrics") or FACTORS
        if self.path != "/v1/reward" or rubric not in FACTORS:
            return self._answer(422, {"error": f"only {list(FACTORS)} is judged here"})
        rewards = [reward(edit, rubric) for edit in request["edits"]]
        return self._answer(
            200, {"protocol": 1, "judge": "contrast-1", "rewards": rewards}
        )

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Keep the terminal clear."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
