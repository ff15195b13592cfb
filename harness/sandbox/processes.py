"""The processes of a sandbox as seen from outside: how much memory they hold, and whether any is left."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.01
_GONE_S = 5.0


def _descendants(pid: int) -> Iterator[int]:
    """A process and all below it; the first of a namespace is given every orphan, so none is missed."""
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        yield found
        try:
            for task in os.listdir(f"/proc/{found}/task"):
                waiting += map(int, Path(f"/proc/{found}/task/{task}/children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
            continue


def memory(first: int, enough: int) -> int:
    """Resident bytes of a program; pages that processes share count in each, unless that would exceed the limit."""
    pids = list(_descendants(first))
    total = sum(map(_resident, pids))
    return total if total <= enough or len(pids) == 1 else sum(map(_proportional, pids))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _proportional(pid: int) -> int:
    """Resident bytes with each shared page divided among those that share it; plain ones where that is hidden."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        return _resident(pid)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def is_gone(namespace: int) -> bool:
    """Whether no process is left in a process namespace; waits a moment for those that are being ended."""
    number = os.fstat(namespace).st_ino
    until = time.monotonic() + _GONE_S
    while _is_used(number):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def _is_used(number: int) -> bool:
    """Whether a process lives in a namespace; one that has ended and only waits to be asked for its status does not."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if os.stat(f"/proc/{name}/ns/pid").st_ino == number and any(_lives(name)):
                    return True
    return False


def _lives(pid: str) -> Iterator[bool]:
    # Thread by thread: the first may have ended before the others.
    for task in os.listdir(f"/proc/{pid}/task"):
        yield Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
