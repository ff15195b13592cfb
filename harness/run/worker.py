"""The process of one variant: owns the engine, runs what the parent asks, sends raw rows back. Stores nothing.

Messages in: ``(method, kwargs)``. Messages out, per call: any number of ``("row", value)``, then one
``("done", value)`` or ``("error", kind, text)``. The process ends with its parent.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from harness.backends import BACKENDS
from harness.backends.base import Backend, EngineSpec
from harness.errors import HarnessError

Send = Callable[[Any], None]

# What the parent may call, and the module beside this one that holds it.
METHODS: dict[str, str] = {
    "tokenize": "tasks",
    "render_chat": "tasks",
    "loglikelihood": "scoring",
    "rolling": "scoring",
    "write": "tasks",
    "probes": "scoring",
    "continuation": "tasks",
    "programs": "tasks",
    "kl_reference": "scoring",
    "kl": "scoring",
    "floor": "scoring",
    "greedy": "tasks",
    "audit": "tasks",
    "trial": "trial",
    "depths": "trial",
    "warm": "trial",
    "sentinel": "trial",
    "idle": "trial",
    "spend": "trial",
}


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends, even while the engine computes."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(5)
        os._exit(1)

    if sys.platform != "linux":
        threading.Thread(target=watch, daemon=True).start()


def load_backend(name: str) -> Backend:
    """Import an engine by its name in ``BACKENDS``."""
    module, _, attribute = BACKENDS[name].partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    return backend


class Worker:
    """Methods the parent may call; each gets ``send`` to stream rows."""

    def __init__(self) -> None:
        """Start empty; ``load`` comes first."""
        self.backend: Backend | None = None

    def call(self, method: str, kwargs: dict[str, Any], send: Send) -> Any:
        """Run one method."""
        if method == "load":
            return self._load(kwargs["spec"])
        if self.backend is None:
            raise RuntimeError("load comes first")
        module = importlib.import_module(f"harness.run.{METHODS[method]}")
        return getattr(module, method)(self.backend, send, **kwargs)

    def _load(self, spec: EngineSpec) -> Any:
        from dataclasses import asdict

        from harness.run.clock import now_ns

        self.backend = load_backend(spec.backend)
        start = now_ns()
        info = self.backend.load(spec)
        return {"load_s": (now_ns() - start) / 1e9, "info": asdict(info)}


def main(descriptor: int, parent: int) -> None:
    """Serve calls until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    connection = Connection(descriptor)
    worker = Worker()
    while True:
        try:
            method, kwargs = connection.recv()
        except EOFError:
            return
        try:
            result = worker.call(method, kwargs, lambda row: connection.send(("row", row)))
        except HarnessError as error:
            connection.send(("error", type(error).__name__, str(error)))
        except Exception as error:
            traceback.print_exc()
            connection.send(("error", "bug", f"{type(error).__name__}: {error}"))
        else:
            connection.send(("done", result))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
