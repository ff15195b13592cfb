"""Where a text mentions words, and what one scores who answers from that alone. Knows no ledger and no model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

Mentions = Mapping[str, Sequence[int]]
_WORD = re.compile(r"\w+")


def mentions(text: str) -> dict[str, list[int]]:
    """Character offsets of every word, ascending.

    >>> mentions("mill, barn, mill")
    {'mill': [0, 12], 'barn': [6]}
    """
    found: dict[str, list[int]] = defaultdict(list)
    for match in _WORD.finditer(text):
        found[match.group()].append(match.start())
    return dict(found)


# What each baseline ranks options by; it answers with the highest. Frequency falls back on recency for equals.
CUES: Mapping[str, Callable[[Sequence[int]], tuple[int, int]]] = {
    "last_mentioned": lambda at: (at[-1], 0),
    "first_mentioned": lambda at: (-at[0], 0),
    "most_frequent": lambda at: (len(at), at[-1]),
    "least_frequent": lambda at: (-len(at), at[-1]),
}


def answer(cue: str, options: Sequence[str], seen: Mentions) -> int:
    """Index of the option that a baseline chooses, from where the words stand and nothing else.

    >>> answer("last_mentioned", [" mill", " barn"], mentions("barn mill barn"))
    1
    """
    keys = [CUES[cue](seen[option.strip()]) for option in options]
    return keys.index(max(keys))
