"""The sandbox: what it refuses, what a run tells, and the filter of system calls."""

from __future__ import annotations

import shutil
import struct

import pytest

from harness import sandbox
from harness.errors import CellError
from harness.sandbox import Limits
from harness.sandbox.command import command_of, filter_program

works = pytest.mark.skipif(sandbox.refusal() is not None, reason=str(sandbox.refusal()))


@pytest.fixture
def asked_anew() -> object:
    sandbox.refusal.cache_clear()
    yield
    sandbox.refusal.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    why = sandbox.refusal()
    assert why is not None and "apt install bubblewrap" in why and "\n" not in why
    with pytest.raises(CellError, match="bubblewrap"):
        sandbox.run(["/bin/true"])


@pytest.mark.usefixtures("asked_anew")
def test_where_bubblewrap_fails_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = sandbox.Ran(1, None, "", "bwrap: No permissions to create new namespace\nmore", 0.1, 0, True)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/bwrap")
    monkeypatch.setattr(sandbox, "_run", lambda *_: failed)
    why = sandbox.refusal()
    assert why is not None and "No permissions to create new namespace" in why and "\n" not in why


def test_the_command_line_shuts_everything_off() -> None:
    line = command_of(["/bin/true"], Limits(), {"a.py": 9}, ["/opt/tool"], {"seccomp": 7})
    for option in ("--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--disable-userns"):
        assert option in line
    bound = [line[n + 1] for n, word in enumerate(line) if word in ("--bind", "--dev-bind")]
    assert bound == []
    assert line[line.index("--file") + 1 :][:2] == ["9", "/work/a.py"]
    assert line[-1] == "/bin/true"


def _verdict(program: bytes, arch: int, call: int, first: int = 0) -> int:
    """What a filter answers, by running its instructions."""
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    data, held, at = {0: call, 4: arch, 16: first}, 0, 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x20:
            held = data[value]
        elif code == 0x06:
            return int(value)
        else:
            at += yes if (held == value if code == 0x15 else held >= value) else no


def test_the_filter_of_system_calls() -> None:
    allow, deny, kill = 0x7FFF0000, 0x00050001, 0x80000000
    for machine, arch, sock, ptrace, write in (
        ("x86_64", 0xC000003E, 41, 101, 1),
        ("aarch64", 0xC00000B7, 198, 117, 64),
    ):
        program = filter_program(machine)
        assert _verdict(program, arch, write) == allow
        assert _verdict(program, arch, ptrace) == deny
        assert _verdict(program, arch, write | 0x40000000) == deny
        assert _verdict(program, 0x40000003, write) == kill
        assert {family: _verdict(program, arch, sock, family) for family in (1, 2, 10, 17, 40)} == {
            1: allow, 2: allow, 10: allow, 17: deny, 40: deny,
        }  # fmt: skip


@works
def test_a_run_tells_how_it_ended() -> None:
    ran = sandbox.run(["/bin/sh", "-c", "cat a.txt; echo no >&2; exit 3"], {"a.txt": "é"})
    assert (ran.code, ran.limit, ran.stdout, ran.stderr, ran.gone) == (3, None, "é", "no\n", True)
    assert sandbox.run(["/bin/sh", "-c", "kill -9 $$"]).code == 137


@works
def test_programs_see_nothing_of_each_other() -> None:
    sandbox.run(["/bin/sh", "-c", "echo x > left"])
    assert sandbox.run(["/bin/ls"]).stdout == ""


@works
def test_output_is_cut_at_its_limit() -> None:
    ran = sandbox.run(["/bin/sh", "-c", "yes"], limits=Limits(output_bytes=1000))
    assert ran.limit == "output limit" and len(ran.stdout) == 1000
