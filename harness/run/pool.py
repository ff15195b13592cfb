"""The parent's side of the workers: start, call, watch for death, keep resident while memory allows.

Knows no suite. Only one worker computes at a time.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from os import getpid
from pathlib import Path
from typing import IO, Any

from harness.backends.base import EngineSpec
from harness.errors import CellError, WorkerDied
from harness.run.clock import now_ns

# A process that hung up or was killed has this long to end.
END_S = 10.0


class WorkerHandle:
    """One running worker process."""

    def __init__(self, log: Path) -> None:
        """Start the process; its messages and the engine's warnings go to ``log``."""
        ours, theirs = socket.socketpair()
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.started_ns = now_ns()
        self._stderr: IO[bytes] = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.run.worker", str(theirs.fileno()), str(getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
        )
        theirs.close()
        self._connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def call(
        self, method: str, on_row: Callable[[Any], None] | None = None, *, quiet_limit_s: float = 600, **kwargs: Any
    ) -> Any:
        """Call a method and return its result; rows go to ``on_row`` as they come.

        Raises:
            WorkerDied: It ended, or sent nothing for ``quiet_limit_s`` seconds (then it is killed).
            CellError: The method failed with a reason.
        """
        with self._alive(method):
            self._connection.send((method, kwargs))
        while True:
            with self._alive(method):
                heard = self._connection.poll(quiet_limit_s)
                kind, *rest = self._connection.recv() if heard else ("silence",)
            if kind == "row":
                if on_row is not None:
                    on_row(rest[0])
            elif kind == "done":
                return rest[0]
            elif kind == "silence":
                self.kill()
                raise WorkerDied(f"no sign of life for {quiet_limit_s:g} s in '{method}'; killed (log: {self.log})")
            else:
                raise CellError(rest[1] if rest[0] != "bug" else f"{rest[1]} (a bug; log: {self.log})")

    @contextmanager
    def _alive(self, method: str) -> Iterator[None]:
        """Tell the end of the process from other faults: of a message cut short the connection says OSError alone."""
        try:
            yield
        except (EOFError, OSError) as error:
            raise WorkerDied(self._obituary(method)) from error

    def _obituary(self, method: str) -> str:
        try:
            code = self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"the engine's process hung up in '{method}' and did not end; killed (log: {self.log})"
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return f"the engine's process ended in '{method}' by {name}{hint} (log: {self.log})"
        return f"the engine's process ended in '{method}' with exit code {code} (log: {self.log})"

    def kill(self) -> None:
        """End the process and wait until it is gone, though not for ever: a driver may hold it."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_S)
        self._connection.close()
        self._stderr.close()


class Pool:
    """Loaded variants, least recently used first out when memory is short."""

    def __init__(self, logs: Path, budget_bytes: float, warm: Callable[[WorkerHandle, EngineSpec], int]) -> None:
        """Keep at most ``budget_bytes`` of engines; ``warm`` loads one and returns the bytes it holds."""
        self._logs = logs
        self._budget = budget_bytes
        self._warm = warm
        self._workers: dict[str, tuple[WorkerHandle, int]] = {}

    def get(self, name: str, spec: EngineSpec) -> WorkerHandle:
        """The variant's worker, loaded and warm. Raises CellError when it can't be loaded."""
        if name in self._workers:
            entry = self._workers.pop(name)
            self._workers[name] = entry
            return entry[0]
        need = max((held for _, held in self._workers.values()), default=0)
        while self._workers and sum(held for _, held in self._workers.values()) + need > self._budget:
            self.drop(next(iter(self._workers)))
        worker = WorkerHandle(self._logs / f"{name}.log")
        try:
            self._workers[name] = (worker, self._warm(worker, spec))
        except BaseException:
            self._workers.pop(name, None)
            worker.kill()
            raise
        return worker

    def drop(self, name: str) -> None:
        """End one worker."""
        entry = self._workers.pop(name, None)
        if entry is not None:
            entry[0].kill()

    def close(self) -> None:
        """End all workers."""
        for name in list(self._workers):
            self.drop(name)
