"""Rewards in a training loop: a client that masks what has no reward, and a toy policy that learns from the rest.

The embedded judge measures preservation and quality and cannot know whether the instruction was followed: for training,
name a judge that does for that rubric, `serve --judge measured --judge-for fidelity=JUDGE`."""

from __future__ import annotations

import base64
import io
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from PIL import Image, ImageFilter
from sample_edits import BLUE, scene

BEFORE = scene(0)


def rewards(
    url: str, edits: list[dict[str, str]], seconds: float = 60, tries: int = 5
) -> list[float | None]:
    """In the order of the edits. None is no reward, and not a reward of 0: leave it out of the loss."""
    body = json.dumps({"edits": edits, "deadline": seconds}).encode()
    request = urllib.request.Request(
        f"{url}v1/reward", body, {"content-type": "application/json"}
    )
    for _ in range(tries):
        try:
            # as we started it: http  # nosec B310
            with urllib.request.urlopen(request, timeout=seconds + 10) as response:
                return [reward["reward"] for reward in json.load(response)["rewards"]]
        except urllib.error.HTTPError as error:
            # else the queue is full or a judge is away: wait as long as it says
            if error.code not in (429, 503):
                raise
            time.sleep(float(error.headers.get("Retry-After", 1)))
    return [None] * len(edits)


def edit(blur: float) -> dict[str, str]:
    """What the toy policy makes: it paints the ball, and its one parameter is how much it blurs."""
    after = scene(0, BLUE).filter(ImageFilter.GaussianBlur(blur))
    return {
        "input": png(BEFORE),
        "edited": png(after),
        "instruction": "Paint the ball blue.",
        "model": "toy policy",
    }


def png(picture: Image.Image) -> str:
    picture.save(out := io.BytesIO(), "PNG")
    return base64.b64encode(out.getvalue()).decode()


with tempfile.TemporaryDirectory() as folder:
    serve = [
        sys.executable,
        "-m",
        "editjudge",
        "serve",
        "--create",
        "--store",
        f"{folder}/s.db",
        "--port",
        "0",
        "--rubric=preservation",
        "--rubric=quality",
    ]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as server:
        # "editjudge: http://127.0.0.1:PORT/ ..."
        url = server.stderr.readline().split()[1]
        blur = 1.0
        chance = random.Random(0)
        for step in range(4):
            tried = [max(0.0, blur + chance.uniform(-0.5, 0.5)) for _ in range(6)]
            answers = zip(rewards(url, [edit(b) for b in tried]), tried, strict=True)
            scored = [(reward, b) for reward, b in answers if reward is not None]
            best, blur = max(scored, key=lambda answer: answer[0], default=(None, blur))
            print(
                f"step {step}: {len(scored)} of {len(tried)} scored, best reward {best}, blur {blur:.2f}"
            )
        server.terminate()
