"""Watches the machine's own speed around each round of trials. Judges nothing.

Two readings: how fast memory is read, by this process, and the gap between the tokens of a short fixed generation by
the worker whose turn is next. Both do the same work every time, so a change is the machine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from harness.meters import bandwidth
from harness.run.clock import now_ns
from harness.run.session import Session

TOKENS = 9


class Sentinel:
    """Readings for one session. Holds up to 256 MiB from the first reading until ``close``."""

    def __init__(self, session: Session) -> None:
        """Allocate nothing yet."""
        self._session = session

    @cached_property
    def _memory(self) -> bandwidth.Sentinel:
        return bandwidth.Sentinel()

    def read(self, name: str) -> Mapping[str, Any]:
        """A reading, now: ``t_ns``, ``bandwidth`` in bytes/s, ``gap_s`` of variant ``by``.

        Raises:
            CellError: The variant's engine failed.
        """
        worker = self._session.worker(name)
        gap_s = worker.call("sentinel", prompt=self._session.fixed_prompt, output_tokens=TOKENS)
        return {"t_ns": now_ns(), "bandwidth": self._memory.probe(), "gap_s": gap_s, "by": name}

    def close(self) -> None:
        """Free the memory."""
        if "_memory" in self.__dict__:
            self._memory.close()
