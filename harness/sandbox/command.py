"""How a program is shut in: bubblewrap's command line, the limits and the filter of system calls. Starts nothing."""

from __future__ import annotations

import os
import pwd
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = "/work"  # where a program's files lie and where it may write
_MIB = 2**20
_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Which compilers /usr/bin names lead to, their settings, and the linker's cache: nothing that is a secret.
_ETC = ("alternatives", "ld.so.cache", "java-*")
# Denied: debugging, keys, memory that no limit sees, new namespaces; on x86-64 and on 64-bit ARM.
_DENIED = {
    "x86_64": (29, 64, 68, 101, 165, 248, 249, 250, 272, 298, 304, 308, 310, 311, 319, 321, 323, 425, 447),
    "aarch64": (194, 190, 186, 117, 40, 217, 218, 219, 97, 241, 265, 268, 270, 271, 279, 280, 282, 425, 447),
}
ARCH = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # as audit.h numbers it; the call socket()
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
        disk_bytes: Of all files in its folder; they lie in memory. 16 MiB more in /tmp.
    """

    memory_bytes: int = 1024 * _MIB
    processes: int = 64
    cpu_s: int = 10
    wall_s: float = 15.0
    output_bytes: int = 256 * 1024
    file_bytes: int = 32 * _MIB
    disk_bytes: int = 128 * _MIB


def filter_program(machine: str) -> bytes:
    """The filter of system calls as classic BPF (struct sock_filter); denied calls fail with EPERM.

    Source: Linux, Documentation/userspace-api/seccomp_filter.rst. Another architecture's calls kill the process.

    Raises:
        KeyError: An architecture that the tables lack.
    """
    load, equal, at_least, ret = 0x20, 0x15, 0x35, 0x06
    allow, deny, kill = 0x7FFF0000, 0x00050001, 0x80000000
    arch, socket = ARCH[machine]
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
def user() -> int:
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
    line += ["--clearenv", "--uid", str(user()), "--gid", str(user()), "--hostname", "sandbox"]
    for option, descriptor in fds.items():
        line += [f"--{option}", str(descriptor)]
    # Before the folders of tools, one of which may lie below.
    line += ["--size", str(16 * _MIB), "--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr"]
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
    line += ["--size", str(limits.disk_bytes), "--tmpfs", FOLDER]
    for name, descriptor in files.items():
        line += ["--file", str(descriptor), f"{FOLDER}/{name}"]
    line += ["--remount-ro", "/", "--chdir", FOLDER]
    path = ":".join([*(f"{bind}/bin" for bind in binds), "/usr/bin", "/bin"])
    for key, value in {"PATH": path, "HOME": FOLDER, "TMPDIR": FOLDER, "LANG": "C.UTF-8"}.items():
        line += ["--setenv", key, value]
    line += ["--", "/usr/bin/prlimit", f"--data={limits.memory_bytes}", f"--nproc={limits.processes}", "--core=0"]
    line += [f"--cpu={limits.cpu_s}:{limits.cpu_s + 1}", f"--fsize={limits.file_bytes}", "--nofile=256", "--"]
    return [*line, *command]
