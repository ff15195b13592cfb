"""A command that runs beside us until it is killed, with all that it started."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# In the environment of all that a command starts, with a value of its own.
MARK = "HARNESS_METER"
_PDEATHSIG = 1


class Child:
    """One running command: no shell, no terminal, nothing to read, a process group of its own.

    Should we die first, the system kills it (Linux), or it finds its pipes closed when it writes.

    Args:
        command: Program and arguments.
        folder: Where it runs; None for here.

    Raises:
        OSError: It does not start.
        ValueError: A null character in it.
    """

    def __init__(self, command: Sequence[str], folder: str | None) -> None:
        """Start it; its output and its complaints are text, read by whoever asked for it."""
        self._mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            list(command),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, MARK: self._mark},
            start_new_session=True,  # no terminal to ask for a password on, and one group to kill
            preexec_fn=_dying_with_us(),
        )

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within that time."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        return self.process.poll() is not None

    def kill(self) -> bool:
        """End its group, and what has left it for a session of its own.

        Returns:
            Whether it was still there. A command of another user (under sudo) is not ours to kill: it ends when it
            finds its pipes closed.
        """
        there = True
        try:
            with suppress(PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            there = False
        for pid in _marked(f"{MARK}={self._mark}"):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return there


def _marked(mark: str) -> list[int]:
    """Processes that have this entry in their environment, as far as the system tells (Linux, our own ones)."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


def _dying_with_us() -> Callable[[], Any] | None:
    """What the child does before it becomes the command: ask the system to kill it when we end."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return lambda: library.prctl(_PDEATHSIG, signal.SIGKILL)
