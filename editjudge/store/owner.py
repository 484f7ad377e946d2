"""Who holds a claim: a process, told from all others, and whether it lives."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import uuid
from pathlib import Path

LEASE = 60.0
"""Seconds that a claim outlives the last sign of its owner: on another machine, a dead one is waited for so long."""
BEAT = 15.0
"""Seconds between two signs: three may be late on a busy disk before a claim is lost."""


def new_owner() -> str:
    return f"{process_name(os.getpid())} {uuid.uuid4().hex}"


def process_name(pid: int) -> str:
    """A process, told from those of another machine or container, and from a later one of the same number."""
    return f"{_here()} {pid} {_started(pid)}"


@functools.cache
def _here() -> str:
    """This machine since it was started, and its processes as they are seen from here."""
    parts = [socket.gethostname().replace(" ", "-")]
    with contextlib.suppress(OSError):  # only on Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def is_on_this_machine(owner: str) -> bool:
    """Whether an owner is or was a process of this machine since it was started: it reads the same monotonic clock."""
    return _machine(owner.partition(" ")[0]) == _machine(_here())


def _machine(here: str) -> str:
    """The mark of a machine's start, which its containers share; its name where there is none."""
    name, *marks = here.split("/", 2)
    return marks[0] if marks else name


def _started(pid: int) -> str:
    """When a process was started; "dead" for one that nobody has buried yet."""
    with contextlib.suppress(OSError, IndexError):  # only on Linux
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "dead" if state in "ZX" else fields[18]
    return "?"


def is_alive(owner: str) -> bool:
    """Whether an owner may live: one elsewhere always may, until its claim expires."""
    here, pid, started, *_ = [*owner.split(" "), "", "", ""]
    if here != _here() or not pid.isdecimal():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # of another user
    return _started(int(pid)) == started
