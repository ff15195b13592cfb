"""Energy by a meter of the user's own: a command that prints ``t_s,watts`` lines for as long as it runs.

``t_s`` are seconds of any clock that only goes forward; ``watts`` what the meter reads at that moment. Each line must
be flushed. The clock is mapped to ours by the least delay seen between a line's stamp and its arrival, so a line that
is held up on its way does not move the curve. Energy is the area under straight lines between the samples. Where that
clock was set meanwhile, the samples begin anew: a window across it is lost.

The command is killed with all that it started when the meter is closed, and when it prints without end.
"""

from __future__ import annotations

import math
import shlex
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import IO

from harness.meters.base import Clock, RawReading
from harness.meters.child import Child
from harness.meters.trace import Trace
from harness.run.clock import now_ns

DOMAIN = "meter"
PROTOCOL = "expected lines 't_s,watts', such as 12.5,87.3, each flushed"
# Longest wait for the first samples, and for the sample that ends a window.
FIRST_S, LAST_S = 10.0, 10.0
LEAST_S, STEP_S = 10.0, 1.0
# A line is no longer than this, and delays are compared over this many lines: clocks drift apart.
LINE, DELAYS = 1000, 1000
# More lines than this are no meter's: to read them would take the processor from what is measured.
FLOOD, FLOOD_S = 10_000, 10.0
# No line is held up for longer than this: if one seems to be, its clock was set, or counts no seconds.
MOST_DELAY_S = 10.0
MOST_W = 1e6
NOT_LATER = "its time is not later than that of the line before"
# Longest wait for a killed command.
END_S = 2.0


class CommandMeter:
    """One external meter.

    Args:
        command: Program and arguments.
        scope: What the meter covers, in words.
        folder: Where it runs; None for here.
        clock: Monotonic nanoseconds.
        first_s, last_s: Longest wait for the first samples and for the one that ends a window, seconds.
    """

    name = "command"
    method = "command"
    least_s = LEAST_S
    poll_s: float | None = None

    def __init__(
        self,
        command: Sequence[str],
        scope: str = "",
        folder: str | None = None,
        clock: Clock = now_ns,
        first_s: float = FIRST_S,
        last_s: float = LAST_S,
    ) -> None:
        """Start the command and wait for its first samples; ``why`` tells why there are none."""
        self._words = shlex.join(command)
        self._clock = clock
        self._last_s = last_s
        self._news = threading.Condition()
        self._trace = Trace()
        self._delays: deque[float] = deque(maxlen=DELAYS)
        self._bad = ""
        self._complaint = ""
        self._fault = ""
        self._ended = self._closed = False
        self._lines, self._counted_s = 0.0, clock() / 1e9
        self.why = ""
        self.domains: dict[str, str] = {}
        self._child: Child | None = None
        self._threads: list[threading.Thread] = []
        self._start(command, folder)
        if self._child is None:
            return
        try:
            enough = self._begins(first_s)
        except BaseException:
            self.close()
            raise
        if enough:
            self.domains = {DOMAIN: scope or self._words}
        else:
            self.close()  # lets it finish what it has to say
            self.why = self._silence(f"printed {len(self._trace.t_s)} samples in {first_s:g} s")

    @property
    def resolution_s(self) -> float:
        """Usual time between two samples."""
        with self._news:
            return self._trace.interval_s or STEP_S

    def read(self) -> list[RawReading]:
        """Marks the moment; the energy is known when the next sample has come."""
        return [RawReading(name, self.method, "j", self._clock(), None, scope=s) for name, s in self.domains.items()]

    def settled(self, readings: Sequence[RawReading]) -> list[RawReading]:
        """The readings with their energy, after waiting for a sample that is later than all of them."""
        last_s = max((reading.t_ns for reading in readings), default=0) / 1e9
        with self._news:
            self._news.wait_for(lambda: self._ended or self._reaches(last_s), self._last_s)
        self._hear_out()
        with self._news:
            return [self._settled(reading) for reading in readings]

    def poll(self) -> None:
        """Nothing to do: lines are read as they come."""

    def close(self) -> None:
        """Kill the command and everything it started."""
        if self._child is None or self._closed:
            return
        self._hear_out()
        self._closed = True
        self._kill(self._child)
        self._child.wait(END_S)
        for thread in self._threads:
            thread.join(timeout=1.0)

    def _begins(self, first_s: float) -> bool:
        """Whether it prints samples."""
        with self._news:
            self._news.wait_for(lambda: self._ended or len(self._trace.t_s) > 1, first_s)
            return not self._fault and len(self._trace.t_s) > 1

    def _kill(self, child: Child) -> None:
        self._ended = not child.kill() or self._ended

    def _hear_out(self) -> None:
        """Let a command that has printed its last line end by itself: its exit code and last words tell why."""
        if self._child is None or not self._ended or self._closed:
            return
        self._child.wait(0.5)
        for thread in self._threads:
            thread.join(timeout=0.5)

    def _settled(self, reading: RawReading) -> RawReading:
        found = self._trace.at(reading.t_ns / 1e9 - self._offset())
        if found is None:
            late = f"no sample later than the window within {self._last_s:g} s"
            why = "the window began before the first sample" if self._reaches(reading.t_ns / 1e9) else late
            return replace(reading, reason="counter_invalid", why=self._silence(why))
        joules, gaps = found
        return replace(reading, value=joules, gaps=gaps, resolution_s=self._trace.interval_s or STEP_S)

    def _offset(self) -> float:
        """Our clock minus the command's, by the least delayed line, seconds."""
        return min(self._delays, default=0.0)

    def _reaches(self, t_s: float) -> bool:
        return bool(self._trace.t_s) and self._trace.t_s[-1] + self._offset() >= t_s

    def _start(self, command: Sequence[str], folder: str | None) -> None:
        try:
            child = Child(command, folder)
        except (OSError, ValueError) as error:  # ValueError: a null character
            reason = error.strerror if isinstance(error, OSError) else None
            self.why = f"{self._words}: does not start: {reason or error}"
            return
        self._child = child
        for pipe, take in ((child.process.stdout, self._line), (child.process.stderr, self._complain)):
            self._threads.append(threading.Thread(target=self._follow, args=(pipe, take), daemon=True))
        for thread in self._threads:
            thread.start()

    def _follow(self, pipe: IO[str], take: Callable[[str], None]) -> None:
        with pipe:
            while not self._closed and (line := pipe.readline(LINE)):
                with self._news:
                    if self._floods():
                        break
                    take(line.strip())
                    self._news.notify_all()
        with self._news:
            self._ended = self._ended or take == self._line
            self._news.notify_all()

    def _floods(self) -> bool:
        """Count a line; kill a command that prints without end."""
        now_s = self._clock() / 1e9
        self._lines = max(0.0, self._lines - (now_s - self._counted_s) * FLOOD / FLOOD_S) + 1
        self._counted_s = now_s
        if self._lines > FLOOD and not self._fault:
            self._fault = f"printed more than {FLOOD} lines within {FLOOD_S:g} s"
            assert self._child is not None
            self._kill(self._child)
        return bool(self._fault)

    def _line(self, line: str) -> None:
        arrived_s = self._clock() / 1e9
        sample = parse(line)
        if sample is None:
            self._bad = line or self._bad
            return
        delay_s = arrived_s - sample[0]
        if was_set := self._was_set(sample[0], delay_s):
            self._bad = f"{line[:40]} ({was_set})"
            self._trace = Trace()
            self._delays.clear()
        if self._trace.add(*sample):
            self._delays.append(delay_s)
        else:
            self._bad = f"{line[:40]} ({NOT_LATER})"

    def _was_set(self, t_s: float, delay_s: float) -> str:
        """What shows that the command's clock was set or counts no seconds; "" where nothing does."""
        if self._trace.t_s and t_s < self._trace.t_s[-1]:
            return NOT_LATER
        if max(self._delays, default=delay_s) - delay_s > MOST_DELAY_S:
            return f"its time went on by more than {MOST_DELAY_S:g} s within less by our clock; t_s are seconds"
        return ""

    def _complain(self, line: str) -> None:
        self._complaint = line or self._complaint

    def _silence(self, what: str) -> str:
        """Why there is no energy, with the last words of the command."""
        code = None if self._child is None or not self._ended else self._child.process.poll()
        if self._fault:
            what = self._fault
        elif code is not None and code >= 0:
            what = f"ended with exit code {code}"
        said = f"{self._bad} {self._complaint}".lower()
        if "password" in said or "passphrase" in said:
            what += "; it asks for a password, which nobody can give here: let it run without one"
        bad = f"; a line read {self._bad[:160]!r}, {PROTOCOL}" if self._bad else ""
        complaint = f"; it said: {self._complaint[:200]}" if self._complaint else ""
        return f"{self._words}: {what}{bad}{complaint}"


def parse(line: str) -> tuple[float, float] | None:
    """``(t_s, watts)`` of one line, or None where it is none.

    >>> parse("12.5, 87.3"), parse("t_s,watts"), parse("1,-5"), parse("1,nan")
    ((12.5, 87.3), None, None, None)
    """
    if not line.isascii() or "_" in line:  # float takes both
        return None
    try:
        t_s, watts = map(float, line.split(","))
    except ValueError:
        return None
    return (t_s, watts) if math.isfinite(t_s) and 0 <= watts <= MOST_W else None
