"""Reading the small text files of /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_BYTES = 65536


def text(path: str | Path) -> str:
    """A file's first 64 KiB, or "" where it can't be read; a caller's figure is then None, with its reason.

    Plain descriptors rather than pathlib: half a dozen of these are read around every timed trial, and pathlib's own
    work costs more than the kernel's.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def number(path: str | Path | None) -> float | None:
    """The whole number a file holds, or None."""
    found = "" if path is None else text(path).strip()
    return float(found) if found.isdigit() else None
