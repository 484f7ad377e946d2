"""Text that `editjudge` without a verb prints: three ways to begin."""

from __future__ import annotations

import os

_EDIT = 'editjudge judge --input a.png --edited b.png --instruction "make the left car blue"'


def welcome() -> str:
    """The very commands, and which of them the keys of this environment allow."""
    from editjudge.judges.providers import PROVIDERS

    variables = [
        name
        for provider in PROVIDERS.values()
        if provider.needs_key
        for name in provider.key_variables
    ]
    keys = [name for name in variables if os.environ.get(name, "").strip()]
    return f"""\
editjudge judges image edits factor by factor, with reasons.

With the embedded judge, which measures pixels, asks nobody and needs no key:
  {_EDIT}

With a model over an API ({"set: " + ", ".join(keys) if keys else "no key is set yet"}):
  export OPENAI_API_KEY=...    (or {", ".join(name for name in variables if name != "OPENAI_API_KEY")})
  {_EDIT} --judge openai/gpt-4.1

With a server of your own, such as vLLM or Ollama:
  {_EDIT} \\
    --judge openai-compatible/MODEL --base-url http://127.0.0.1:8000/v1

Many edits: `editjudge run edits.jsonl`, then `editjudge report RUN` and `editjudge compare RUN`.
`editjudge doctor` says which judges are ready, `editjudge --help` lists every verb."""
