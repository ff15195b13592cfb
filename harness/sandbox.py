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
import pwd
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from harness.errors import CellError

Limit = Literal["timeout", "memory", "output limit"]
FOLDER = "/work"  # where a program's files lie and where it may write
INSTALL = "install bubblewrap (Debian: apt install bubblewrap)"
_MIB = 2**20
_POLL_S = 0.01
_GONE_S = 5.0
_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Which compilers /usr/bin names lead to, their settings, and the linker's cache: nothing that is a secret.
_ETC = ("alternatives", "ld.so.cache", "java-*")
# Denied: debugging, keys, memory that no limit sees, new namespaces; on x86-64 and on 64-bit ARM.
_DENIED = {
    "x86_64": (29, 64, 68, 101, 165, 248, 249, 250, 272, 298, 304, 308, 310, 311, 319, 321, 323, 425, 447),
    "aarch64": (194, 190, 186, 117, 40, 217, 218, 219, 97, 241, 265, 268, 270, 271, 279, 280, 282, 425, 447),
}
_ARCH = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # as audit.h numbers it; the call socket()
_FAMILIES = (1, 2, 10, 16)  # unix, both internets, netlink: those that the network namespace holds in; vsock is not


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.

    Attributes:
        memory_bytes: Of each process's data, and resident of all its processes together.
        processes: Processes and threads.
        cpu_s: CPU seconds of each process.
        wall_s: Seconds in all.
        output_bytes: Of standard output and error together.
        file_bytes: Of each file.
        disk_bytes: Of all files; they lie in memory.
    """

    memory_bytes: int = 1024 * _MIB
    processes: int = 64
    cpu_s: int = 10
    wall_s: float = 15.0
    output_bytes: int = 256 * 1024
    file_bytes: int = 32 * _MIB
    disk_bytes: int = 128 * _MIB


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


def filter_program(machine: str) -> bytes:
    """The filter of system calls as classic BPF (struct sock_filter); denied calls fail with EPERM.

    Source: Linux, Documentation/userspace-api/seccomp_filter.rst. Another architecture's calls kill the process.

    Raises:
        KeyError: An architecture that the tables lack.
    """
    load, equal, at_least, ret = 0x20, 0x15, 0x35, 0x06
    allow, deny, kill = 0x7FFF0000, 0x00050001, 0x80000000
    arch, socket = _ARCH[machine]
    denied = _DENIED[machine]
    lines = [(load, 0, 0, 4), (equal, 1, 0, arch), (ret, 0, 0, kill), (load, 0, 0, 0)]
    lines += [(at_least, 0, 1, 0x40000000), (ret, 0, 0, deny)]  # the x32 calls of x86-64
    for number in denied:
        lines += [(equal, 0, 1, number), (ret, 0, 0, deny)]
    lines += [(equal, 1, 0, socket), (ret, 0, 0, allow), (load, 0, 0, 16)]
    for family in _FAMILIES:
        lines += [(equal, 0, 1, family), (ret, 0, 0, allow)]
    lines.append((ret, 0, 0, deny))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


@cache
def _user() -> int:
    """A user number without an account and without rights."""
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    return next(number for number in range(61184, 65000) if number not in taken)


def command_of(
    command: Sequence[str], limits: Limits, files: Mapping[str, int], binds: Sequence[str], fds: Mapping[str, int]
) -> list[str]:
    """The whole command line of a program in its sandbox.

    Args:
        command: The program and its arguments.
        limits: What it may use.
        files: Descriptors to copy its files from, by name.
        binds: Folders outside /usr that it may read.
        fds: Descriptors by option: "info-fd", "block-fd", "seccomp".
    """
    line = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    line += ["--clearenv", "--uid", str(_user()), "--gid", str(_user()), "--hostname", "sandbox"]
    for option, descriptor in fds.items():
        line += [f"--{option}", str(descriptor)]
    line += ["--ro-bind", "/usr", "/usr"]
    for name in _FOLDERS:
        place = Path("/", name)
        if place.is_symlink():
            line += ["--symlink", os.readlink(place), str(place)]
        elif place.is_dir():
            line += ["--ro-bind", str(place), str(place)]
    for pattern in _ETC:
        for found in sorted(Path("/etc").glob(pattern)):
            line += ["--ro-bind", str(found), str(found)]
    for bind in binds:
        line += ["--ro-bind", bind, bind]
    line += ["--proc", "/proc", "--dev", "/dev", "--size", str(_MIB), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    line += ["--size", str(limits.disk_bytes), "--tmpfs", FOLDER, "--symlink", FOLDER.strip("/"), "/tmp"]
    for name, descriptor in files.items():
        line += ["--file", str(descriptor), f"{FOLDER}/{name}"]
    line += ["--remount-ro", "/", "--chdir", FOLDER]
    path = ":".join([*(f"{bind}/bin" for bind in binds), "/usr/bin", "/bin"])
    for key, value in {"PATH": path, "HOME": FOLDER, "TMPDIR": FOLDER, "LANG": "C.UTF-8"}.items():
        line += ["--setenv", key, value]
    line += ["--", "/usr/bin/prlimit", f"--data={limits.memory_bytes}", f"--nproc={limits.processes}", "--core=0"]
    line += [f"--cpu={limits.cpu_s}:{limits.cpu_s + 1}", f"--fsize={limits.file_bytes}", "--nofile=256", "--"]
    return [*line, *command]


@cache
def refusal() -> str | None:
    """Why programs can't be run here, in one line that says what to do; None where they can."""
    if sys.platform != "linux":
        return f"generated code is not run: bubblewrap needs Linux, this is {sys.platform}; run it on Linux"
    if platform.machine() not in _ARCH:
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
    limits: Limits = Limits(),
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

        def kept(descriptor: int) -> int:
            stack.callback(_close, descriptor)
            return descriptor

        given = {name: kept(_memory_file(text.encode(errors="replace"))) for name, text in files.items()}
        calls = kept(_memory_file(filter_program(platform.machine())))
        info_in, info_out = map(kept, os.pipe())
        block_in, block_out = map(kept, os.pipe())
        fds = {"info-fd": info_out, "block-fd": block_in, "seccomp": calls}
        drop = {"user": _user(), "group": _user(), "extra_groups": []} if os.geteuid() == 0 else {}
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
            _close(descriptor)
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
        gone = namespace is None or _is_gone(namespace)
        return Ran(code, limit, out.decode(errors="replace"), err.decode(errors="replace"), seconds, peak, gone)


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # closed already
        os.close(descriptor)


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
            for key, _ in selector.select(_POLL_S):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                texts[key.fileobj] += chunk  # type: ignore[index]
            peak = max(peak, sum(map(_resident, _descendants(first)))) if first else peak
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


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


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


def _is_gone(namespace: int) -> bool:
    """Whether no process is left in a process namespace; waits a moment for those that are being ended."""
    number = os.fstat(namespace).st_ino
    until = time.monotonic() + _GONE_S
    while _is_used(number):
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def _is_used(number: int) -> bool:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if os.stat(f"/proc/{name}/ns/pid").st_ino == number:
                    return True
    return False
