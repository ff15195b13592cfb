"""Keeps llama.cpp off Intel's AMX where the library was built by a compiler that breaks it.

GCC before 11.5, 12.4 and 13.3 deletes most of the tile configuration that ggml stores before ``ldtilecfg``
(https://gcc.gnu.org/PR114098), so that the first prompt with quantised weights ends the process with SIGILL; Debian
12's GCC 12.2 is one of them. ggml falls back to its other kernels if Linux denies it the tile registers, and Linux
denies them while a thread has an alternate signal stack too small to save them: so one is installed while the first
model loads.
"""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

_FIXED = {11: 5, 12: 4, 13: 3}
REMEDY = (
    "build it with clang or a newer GCC; on Debian: apt install clang-19 libomp-19-dev, then "
    "CC=clang-19 CXX=clang++-19 pip install --force-reinstall --no-deps --no-cache-dir --no-binary :all: "
    "llama-cpp-python=={version}"
)
_SMALL_STACK = 8192  # the tiles alone need 8192 bytes more than the rest of the frame


class _Stack(ctypes.Structure):
    _fields_ = (("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def is_broken(compiler: str) -> bool:
    """Whether the compiler that a library names in its ``.comment`` breaks AMX.

    >>> is_broken("GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"), is_broken("GCC: (Debian 14.2.0-19) 14.2.0")
    (True, False)
    """
    found = re.match(r"GCC: \(.*?\) (\d+)\.(\d+)", compiler)
    if not found:
        return False
    major, minor = int(found.group(1)), int(found.group(2))
    return major < 11 or minor < _FIXED.get(major, 0)


@cache
def fault(library: Path) -> str | None:
    """Why AMX must be avoided with this library on this machine, or None."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return None
    cpu, code = Path("/proc/cpuinfo"), library.with_name("libggml-cpu.so")
    if not cpu.exists() or " amx_tile" not in cpu.read_text() or not code.exists():
        return None
    named = re.findall(rb"GCC: \([^\0]{1,80}?\) \d+\.\d+\.\d+", code.read_bytes())
    broken = sorted({text.decode(errors="replace") for text in named if is_broken(text.decode(errors="replace"))})
    return f"built by {broken[0]}, which miscompiles AMX (gcc.gnu.org/PR114098)" if broken else None


def remedy() -> str:
    """How to get a build with AMX, as one line."""
    return REMEDY.format(version=version("llama-cpp-python"))


def installed_library() -> Path | None:
    """The installed package's shared library, found without loading it; None where there is none."""
    package = find_spec("llama_cpp")
    return Path(package.origin).parent / "lib" / "libllama.so" if package and package.origin else None


def installed_fault() -> str | None:
    """``fault`` of the installed library."""
    library = installed_library()
    return fault(library) if library else None


@contextmanager
def without_tiles() -> Iterator[None]:
    """Have Linux deny the tile registers to this process for as long as the block runs."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = ctypes.create_string_buffer(_SMALL_STACK)
    small, before = _Stack(ctypes.addressof(memory), 0, _SMALL_STACK), _Stack()
    if libc.sigaltstack(ctypes.byref(small), ctypes.byref(before)) != 0:
        raise OSError(ctypes.get_errno(), "sigaltstack")
    try:
        yield
    finally:
        libc.sigaltstack(ctypes.byref(before), None)
