"""The bandwidth ceiling of decoding. Knows bytes and bytes per second only.

To make one token, decoding reads every active weight and the keys and values of all tokens so far. So tokens/s of one
stream cannot pass bandwidth over those bytes. Speculation reads the weights once for several tokens, and the draft's
weights for each drafted one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.record import Figure, missing


@dataclass(frozen=True, slots=True)
class Traffic:
    """What memory delivers for one pass over a model.

    Attributes:
        weight_bytes: Of the active weights.
        kv: Groups of layers as (bytes of keys and values a token of context, tokens looked back or None for all).
    """

    weight_bytes: float
    kv: tuple[tuple[float, int | None], ...] = ()

    def kv_bytes(self, depth: float) -> float:
        """Bytes of keys and values read at a depth: ``sum of bytes x min(depth, window)``.

        >>> Traffic(100.0, ((2.0, None), (3.0, 10))).kv_bytes(50)
        130.0
        """
        return math.fsum(n_bytes * (depth if window is None else min(depth, window)) for n_bytes, window in self.kv)

    def at(self, depth: float) -> float:
        """All bytes read at a depth."""
        return self.weight_bytes + self.kv_bytes(depth)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"weight_bytes": self.weight_bytes, "kv": [list(group) for group in self.kv]}


def traffic_of(plain: Mapping[str, Any]) -> Traffic:
    """A ``Traffic`` from its plain JSON."""
    return Traffic(float(plain["weight_bytes"]), tuple((float(size), window) for size, window in plain["kv"]))


def ceiling_tps(bandwidth_bytes_per_s: float, active_bytes: float, kv_bytes: float = 0.0) -> float:
    """Most tokens/s that memory bandwidth allows one stream without speculation.

    Formula: ``bandwidth / (active weight bytes + KV bytes at that depth)``

    Raises:
        ValueError: If the bandwidth or the bytes are not positive.

    >>> round(ceiling_tps(3.35e12, 70e9 * 2), 1)
    23.9
    """
    if bandwidth_bytes_per_s <= 0 or active_bytes + kv_bytes <= 0:
        raise ValueError(f"ceiling_tps: bandwidth {bandwidth_bytes_per_s}, bytes {active_bytes + kv_bytes}; both > 0")
    return bandwidth_bytes_per_s / (active_bytes + kv_bytes)


@dataclass(frozen=True, slots=True)
class Drafting:
    """What speculation did in a run.

    Attributes:
        tokens_per_pass: Tokens that one pass of the target gave, a.
        drafted_per_pass: Tokens drafted for it, k.
        draft_bytes: Read by the draft for each of them; 0 where the draft is looked up in the prompt.
    """

    tokens_per_pass: float
    drafted_per_pass: float
    draft_bytes: float = 0.0


def bytes_per_token(pass_bytes: float, drafting: Drafting | None) -> float:
    """Bytes read for each token that comes out: ``(pass + k x draft) / a`` with speculation, else those of a pass.

    Of a mixture of experts a pass that verifies several tokens reads more experts than one token would, so with
    speculation this is the least that is read, and the ceiling is no tighter than for one token.

    >>> bytes_per_token(200.0, Drafting(tokens_per_pass=2.5, drafted_per_pass=4, draft_bytes=25.0))
    120.0
    """
    if drafting is None:
        return pass_bytes
    return (pass_bytes + drafting.drafted_per_pass * drafting.draft_bytes) / drafting.tokens_per_pass


def mbu(decode_tps: Figure, ceiling: Figure) -> Figure:
    """Share of the bandwidth ceiling that decoding reaches (MBU): ``decode_tps / ceiling_tps``.

    The interval is that of the speed; the bandwidth's own error is not in it.
    """
    reasons = tuple(dict.fromkeys((*decode_tps.reasons, *ceiling.reasons)))
    if decode_tps.value is None or not ceiling.value:
        return missing(*(reasons or ("undefined",)))
    low, value, high = (
        None if v is None else v / ceiling.value for v in (decode_tps.low, decode_tps.value, decode_tps.high)
    )
    return replace(decode_tps, value=value, low=low, high=high, reasons=reasons)
