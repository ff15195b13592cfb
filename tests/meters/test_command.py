"""An external meter: what real processes print, and what they do wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.meters.base import window
from harness.meters.command import CommandMeter, parse
from harness.metrics.energy import total_joules

# Prints two samples and stays silent.
SILENT = "echo 0,10; echo 1,10; exec sleep 60"


class Tick:
    """A clock that only moves when told, seconds."""

    s = 1001.0

    def __call__(self) -> int:
        return round(self.s * 1e9)


def shell(script: str, **options: object) -> CommandMeter:
    return CommandMeter(["/bin/sh", "-c", script], **options)  # type: ignore[arg-type]


def feed(meter: CommandMeter, clock: Tick, *samples: tuple[float, float, float]) -> None:
    """Lines as they arrive: ``(arrival on our clock, stamp, watts)``."""
    for arrival, stamp, watts in samples:
        clock.s = arrival
        meter._line(f"{stamp},{watts}")


def test_the_area_under_the_samples_on_another_clock() -> None:
    clock = Tick()
    meter = shell(SILENT, scope="wall", clock=clock)
    try:
        assert meter.domains == {"meter": "wall"} and meter.why == ""
        # Its clock is 999.5 s behind ours: the line stamped 2 took no time, all others were held up.
        feed(meter, clock, (1001.5, 2, 10), (1002.9, 3, 30), (1003.6, 4, 30), (1006.0, 5, 30))
        clock.s = 1002.0
        before = meter.read()  # 2.5 on its clock
        clock.s = 1004.0
        pair = window(*(meter.settled(readings) for readings in (before, meter.read())))[0]  # 4.5
        # 20 -> 30 W over 0.5 s, then 30 W for 1.5 s: 12.5 + 45 J.
        assert total_joules([pair]) == (None, "below_resolution")  # two steps of 1 s
        assert pair["after"] - pair["before"] == pytest.approx(57.5)
        assert (pair["window_s"], pair["resolution_s"], pair["scope"], pair["unit"]) == (2.0, 1.0, "wall", "j")
    finally:
        meter.close()


def test_a_gap_in_the_window_and_a_window_past_the_last_sample_are_invalid() -> None:
    clock = Tick()
    meter = shell(SILENT, clock=clock, last_s=0.0)
    try:
        feed(meter, clock, *((1000.0 + n, float(n), 10.0) for n in range(2, 9)), (1030.0, 30.0, 10.0))
        readings = []
        for clock.s in (1007.0, 1020.0, 1031.0):
            readings += meter.read()
        start, inside, late = meter.settled(readings)
        assert window([start], [inside])[0]["reason"] == "counter_invalid"
        assert "unseen" in window([start], [inside])[0]["why"]
        assert window([start], [late])[0]["after"] is None and "no sample later than the window" in late.why
    finally:
        meter.close()


def test_a_window_that_ends_the_command_says_how_it_ended() -> None:
    meter = shell("echo 0,10; echo 1,10; read line; echo the battery is empty >&2; exit 7")
    before = meter.read()
    (after,) = meter.settled(meter.read())
    meter.close()
    assert before and after.reason == "counter_invalid"
    assert "ended with exit code 7" in after.why and "the battery is empty" in after.why


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", ["ended with exit code 3"]),
        ("echo no such device >&2; exit 1", ["exit code 1", "it said: no such device"]),
        ("echo watts: 12; echo 5", ["a line read '5'", "expected lines 't_s,watts'"]),
        ("echo 5,1; echo 4,1", ["not later than that of the line before"]),
        # As sudo, powermetrics and ssh ask: on the terminal that is not there, or on input that is at its end.
        ("printf Password: >&2; read secret < /dev/tty || exit 1", ["asks for a password", "Password:"]),
        ("printf Password:; read secret || exit 1", ["asks for a password"]),
    ],
)
def test_what_goes_wrong_is_said_and_nothing_hangs(script: str, words: list[str]) -> None:
    meter = shell(script)
    assert not meter.domains and meter.read() == []
    assert all(word in meter.why for word in words), meter.why


def test_silence_is_waited_for_no_longer_than_allowed() -> None:
    meter = shell("exec sleep 60", first_s=0.05)
    assert "printed 0 samples in 0.05 s" in meter.why and meter._child is not None
    assert meter._child.process.poll() == -signal.SIGKILL


def test_a_command_that_does_not_exist() -> None:
    meter = CommandMeter(["/no/such/meter", "--fast"])
    assert meter.why == "/no/such/meter --fast: does not start: No such file or directory" and not meter.domains
    meter.close()


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    """Whether a process that was killed ends soon; nobody here waits for it."""
    for _ in range(2000):
        if not alive(pid):
            return True
        os.sched_yield()
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_closing_kills_what_the_command_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    meter = shell(f"sleep 60 & echo $! > {note}; {SILENT.replace('exec ', '')}")
    assert meter.domains
    child = int(note.read_text())
    assert alive(child)
    meter.close()
    meter.close()  # twice does no harm
    assert gone(child)


@pytest.mark.skipif(sys.platform != "linux", reason="the system kills the command on Linux only")
def test_the_command_dies_with_us(tmp_path: Path) -> None:
    script = (
        "import os\nfrom harness.meters.command import CommandMeter\n"
        f"meter = CommandMeter(['/bin/sh', '-c', {SILENT!r}])\n"
        "print(meter._child.process.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert gone(int(done.stdout))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_closing_finds_what_has_left_the_group(tmp_path: Path) -> None:
    """A daemon: a session of its own, and its parent is gone. A command that ended by itself left it behind."""
    note = tmp_path / "pid"
    daemon = f"(setsid sleep 60 >/dev/null 2>&1 & echo $! > {note})"
    for script in (f"{daemon}; {SILENT}", f"{daemon}; exit 0"):
        meter = shell(script)
        child = int(note.read_text())
        meter.close()
        assert gone(child)


def test_a_command_of_another_user_ends_by_its_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under sudo: nobody here may send it a signal."""

    def refused(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    meter = shell("n=0; while :; do n=$((n+1)); echo $n,10; sleep 0.01; done")
    monkeypatch.setattr(os, "killpg", refused)
    monkeypatch.setattr(os, "kill", refused)
    meter.close()
    assert meter._child is not None and meter._child.process.poll() is not None


@pytest.mark.parametrize("script", ["yes 1,2", "yes", "yes >&2", "tr '\\0' x < /dev/zero"])
def test_a_flood_is_ended(script: str) -> None:
    meter = shell(script, first_s=5.0)
    assert not meter.domains and "printed more than 10000 lines within 10 s" in meter.why
    assert meter._child is not None and meter._child.process.poll() is not None


def test_a_flood_of_samples_leaves_no_window() -> None:
    meter = CommandMeter([sys.executable, "-S", "-c", "n = 0\nwhile True:\n n += 1\n print(f'{n / 1e6},5')"])
    assert meter._child is not None and meter._child.process.wait(20) == -signal.SIGKILL
    (late,) = meter.settled(meter.read()) or [None]
    meter.close()
    assert late is None or (late.reason == "counter_invalid" and "more than 10000 lines" in late.why)
    assert late is not None or "more than 10000 lines" in meter.why


def test_a_command_that_cannot_be_one() -> None:
    meter = CommandMeter(["/bin/sh\0", "-c"])
    assert not meter.domains and "does not start: embedded null byte" in meter.why


def test_an_interrupted_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[CommandMeter] = []

    def start(meter: CommandMeter, *args: object) -> None:
        started.append(meter)
        # This one's alone: others wait before a fork too.
        monkeypatch.setattr(meter._news, "wait_for", interrupted)
        original(meter, *args)  # type: ignore[arg-type]

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    original = CommandMeter._start
    monkeypatch.setattr(CommandMeter, "_start", start)
    with pytest.raises(KeyboardInterrupt):
        shell("exec sleep 60")
    child = started[0]._child
    assert child is not None and child.process.poll() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("late", "words"),
    [
        # Five seconds of stamps a second time, as after setting a clock back.
        ([(1006.0 + n, 1.0 + n, 10.0) for n in range(12)], "not later than that of the line before"),
        # And an hour ahead.
        ([(1006.0 + n, 3606.0 + n, 10.0) for n in range(12)], "within less by our clock"),
    ],
)
def test_a_clock_that_is_set_voids_the_windows_around_it(late: list[tuple[float, float, float]], words: str) -> None:
    clock = Tick()
    clock.s = 1001.0
    meter = shell(SILENT, clock=clock, last_s=0.0)
    try:
        feed(meter, clock, *((1000.0 + n, float(n), 10.0) for n in range(2, 6)))
        clock.s = 1003.0
        start = meter.read()
        feed(meter, clock, *late)
        clock.s = 1010.0
        middle = meter.read()
        clock.s = 1016.0
        start, middle, end = meter.settled([*start, *middle, *meter.read()])
        assert window([start], [end])[0]["reason"] == "counter_invalid" and words in window([start], [end])[0]["why"]
        # What lies behind it is measured again.
        assert total_joules(window([middle], [end])) == (pytest.approx(60.0), None)
    finally:
        meter.close()


def test_stamps_in_milliseconds_are_no_seconds() -> None:
    meter = shell("t=0; while :; do t=$((t+20000)); echo $t,10; sleep 0.01; done", first_s=0.1)
    assert not meter.domains and "t_s are seconds" in meter.why


@pytest.mark.parametrize(
    "line",
    ["", "x,1", "1", "1,2,3", "inf,1", "1,nan", "1,-0.5", "1,1e400", "1,1000001", "1_000,5", "1,5_0", "\u0661,\u0662"],
)
def test_lines_that_are_no_samples(line: str) -> None:
    assert parse(line) is None


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    meter = CommandMeter(["/bin/echo", f"1,2; touch {tmp_path}/made"])
    assert not list(tmp_path.iterdir()) and "a line read" in meter.why
