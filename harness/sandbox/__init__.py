"""Runs untrusted programs under bubblewrap, and only there; where it does not work they are refused.

A program sees an empty file system of its own, the toolchain read-only, no network, no process but its own and nothing
of the environment. It runs as a user without rights, through a filter of system calls. Its memory, processes, CPU and
wall seconds, output and files are limited, and after each run every process of it is proven gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from harness.errors import CellError
from harness.sandbox.command import ARCH, FOLDER, Limits, command_of, filter_program, user
from harness.sandbox.processes import POLL_S, is_gone, memory

__all__ = ["FOLDER", "Limits", "Ran", "refusal", "run", "user"]

DEFAULT = Limits()
Limit = Literal["timeout", "memory", "output limit"]
INSTALL = "install bubblewrap (Debian: apt install bubblewrap)"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended.

    Attributes:
        code: Exit status; 128 + the signal's number where a signal ended it.
        limit: The limit that ended it, or None.
        stdout, stderr: What it wrote, at most ``output_bytes``.
        seconds: Wall seconds with the sandbox's own.
        peak_bytes: Most resident memory of all its processes seen together, by samples every 10 ms.
        gone: No process of it is left.
    """

    code: int
    limit: Limit | None
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int
    gone: bool


@cache
def refusal() -> str | None:
    """Why programs can't be run here, in one line that says what to do; None where they can."""
    if sys.platform != "linux":
        return f"generated code is not run: bubblewrap needs Linux, this is {sys.platform}; run it on Linux"
    if platform.machine() not in ARCH:
        return f"generated code is not run: no filter of system calls for {platform.machine()}; use x86-64 or ARM64"
    if shutil.which("bwrap") is None:
        return f"generated code is not run: bubblewrap (bwrap) not found; {INSTALL}"
    if not Path("/usr/bin/prlimit").exists():
        return "generated code is not run: /usr/bin/prlimit not found; install util-linux"
    try:
        ran = _run(("/bin/sh", "-c", "echo ok"), {}, Limits(), ())
    except CellError as error:
        return f"generated code is not run: {error}"
    if ran.stdout == "ok\n" and ran.gone:
        return None
    said = next(iter(ran.stderr.splitlines()), f"exit {ran.code}")
    return f"generated code is not run: bubblewrap does not work here ({said}); allow user namespaces, bwrap >= 0.8"


def run(
    command: Sequence[str],
    files: Mapping[str, str] | None = None,
    limits: Limits = DEFAULT,
    binds: Sequence[str] = (),
) -> Ran:
    """Run a program in a sandbox of its own and end everything it started.

    Args:
        command: The program and its arguments, run in ``FOLDER``.
        files: Texts of files put there first, by name.
        limits: What it may use.
        binds: Folders outside /usr that it may read, each with its programs in ``bin``.

    Raises:
        CellError: Programs can't be run here; or one of its processes could not be ended.
    """
    if (why := refusal()) is not None:
        raise CellError(why)
    ran = _run(command, files or {}, limits, binds)
    if not ran.gone:
        raise CellError("a process of a generated program outlived its sandbox; no further program is run")
    return ran


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("sandbox", 0)
    with open(descriptor, "wb", closefd=False) as out:
        out.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _run(command: Sequence[str], files: Mapping[str, str], limits: Limits, binds: Sequence[str]) -> Ran:
    with contextlib.ExitStack() as stack:
        held: set[int] = set()

        def kept(descriptor: int) -> int:
            held.add(descriptor)
            stack.callback(close, descriptor)
            return descriptor

        def close(descriptor: int) -> None:
            # Once only: another thread may have been given the number since.
            if descriptor in held:
                held.remove(descriptor)
                os.close(descriptor)

        given = {name: kept(_memory_file(text.encode(errors="replace"))) for name, text in files.items()}
        calls = kept(_memory_file(filter_program(platform.machine())))
        info_in, info_out = map(kept, os.pipe())
        block_in, block_out = map(kept, os.pipe())
        fds = {"info-fd": info_out, "block-fd": block_in, "seccomp": calls}
        drop = {"user": user(), "group": user(), "extra_groups": []} if os.geteuid() == 0 else {}
        began = time.monotonic()
        # An environment of its own too: /proc shows a process the one that its parents began with.
        process = subprocess.Popen(
            command_of(command, limits, given, binds, fds),
            **drop,  # type: ignore[call-overload]
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
            cwd="/",
            pass_fds=(*given.values(), *fds.values()),
            start_new_session=True,
        )
        for descriptor in (info_out, block_in):
            close(descriptor)
        first, namespace = None, None
        try:
            with open(info_in, closefd=False) as told:
                text = told.read()
            if text:
                first = int(json.loads(text)["child-pid"])
                # Held open, so that the namespace's number can't be given to another one meanwhile.
                namespace = kept(os.open(f"/proc/{first}/ns/pid", os.O_RDONLY))
                os.write(block_out, b"x")
            limit, out, err, peak = _watch(process, first, limits, began)
        finally:
            _end(process, first)
        seconds = time.monotonic() - began
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        gone = namespace is None or is_gone(namespace)
        return Ran(code, limit, out.decode(errors="replace"), err.decode(errors="replace"), seconds, peak, gone)


def _watch(
    process: subprocess.Popen[bytes], first: int | None, limits: Limits, began: float
) -> tuple[Limit | None, bytes, bytes, int]:
    """Read what a program writes until it ends or reaches a limit: ``(limit, stdout, stderr, peak bytes)``."""
    assert process.stdout is not None and process.stderr is not None
    texts = {process.stdout: bytearray(), process.stderr: bytearray()}
    limit: Limit | None = None
    peak = 0
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        while limit is None and selector.get_map():
            for key, _ in selector.select(POLL_S):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                texts[key.fileobj] += chunk  # type: ignore[index]
            peak = max(peak, memory(first, limits.memory_bytes)) if first else peak
            if sum(map(len, texts.values())) > limits.output_bytes:
                limit = "output limit"
            elif peak > limits.memory_bytes:
                limit = "memory"
            elif time.monotonic() - began > limits.wall_s:
                limit = "timeout"
    if limit is None:
        # Both ends closed: it has ended, or it closed them itself and goes on.
        try:
            process.wait(max(0.0, limits.wall_s - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            limit = "timeout"
    out, err = (bytes(text[: limits.output_bytes]) for text in texts.values())
    # The kernel ends a process at its CPU seconds with SIGXCPU, and a second later with SIGKILL if it ignores that.
    code, most_cpu_s = process.returncode, (time.monotonic() - began) * (os.cpu_count() or 1)
    if code == 128 + signal.SIGXCPU or (code == 128 + signal.SIGKILL and most_cpu_s >= limits.cpu_s):
        limit = limit or "timeout"
    return limit, out, err, peak


def _end(process: subprocess.Popen[bytes], first: int | None) -> None:
    """Kill the namespace's first process, with which the kernel kills all others, and then bubblewrap itself."""
    if process.poll() is None:
        for pid in filter(None, (first, process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
