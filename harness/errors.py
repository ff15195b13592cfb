"""Every error a user may meet, with the exit code it ends in.

    HarnessError            a message for a person; never a traceback
    ├── InputError          exit 2: what was given is wrong (file, line, found, expected, what to do)
    │   └── ConfigError     exit 2: the same, in variants.yaml
    ├── CellError           exit 1: one cell failed; it is recorded and the sweep goes on
    │   └── WorkerDied      exit 1: the process of a variant ended (crash, out of memory, hang)
    └── NoVariantQualifies  exit 3: `choose` found none

An OSError that no one could say more about (a name that is too long, a full disk) ends in one line and exit 2 as well.
Anything else that is raised is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Longer than any message that is not padded by what it quotes.
MAX_LINE = 1200


class HarnessError(Exception):
    """A failure that one line explains.

    Attributes:
        exit_code: What the process ends with when this reaches the command line.
    """

    exit_code = 1


class InputError(HarnessError):
    """What the user gave is wrong. Exit code 2, nothing written."""

    exit_code = 2


class ConfigError(InputError):
    """A fault in ``variants.yaml``: ``file:line: where: what was found; what was expected; what to do``."""


class CellError(HarnessError):
    """One cell (variant x suite) failed. Recorded with its reason; other cells go on."""


class WorkerDied(CellError):
    """A variant's process ended while it worked: a crash, an out-of-memory kill, or a hang past its limit."""


class NoVariantQualifies(HarnessError):
    """No variant meets the stated constraints. Exit code 3."""

    exit_code = 3


def one_line(text: str, limit: int = MAX_LINE) -> str:
    r"""Text from outside as a message may hold it: one line, nothing that a terminal obeys, and not endless.

    >>> print(one_line("a\nb\x1b[31m"))
    a\nb\x1b[31m
    >>> one_line("x" * 100, 12)
    'xxxxxxxxx ... xxx'
    """
    if len(text) > limit:
        text = f"{text[: limit * 3 // 4]} ... {text[-(limit // 4) :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """Closing words of an error about an unknown name.

    >>> did_you_mean("lama_cpp", ["fake", "llama_cpp"])
    "known: fake, llama_cpp. Did you mean 'llama_cpp'?"
    >>> did_you_mean("zzz", ["fake"])
    'known: fake'
    """
    names = sorted(known)
    close = difflib.get_close_matches(found, names, n=1)
    hint = f". Did you mean '{close[0]}'?" if close else ""
    return f"known: {', '.join(names)}{hint}"
