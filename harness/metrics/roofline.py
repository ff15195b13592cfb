"""The bandwidth ceiling of decoding. Knows bytes and bytes per second only.

To make one token, decoding reads every active weight and the keys and values of all tokens so far. So
tokens/s of one stream cannot pass bandwidth over those bytes. Speculation reads the weights once for
several tokens and may pass it.
"""

from __future__ import annotations

from dataclasses import replace

from harness.record import Figure, missing


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_value: float) -> float:
    """Bytes of keys and values that one token adds: ``2 x layers x kv_heads x head_dim x bytes_per_value``."""
    return 2 * layers * kv_heads * head_dim * bytes_per_value


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


def ceiling_figure(bandwidth_bytes_per_s: float | None, active_bytes: float | None, kv_bytes: float = 0.0) -> Figure:
    """`ceiling_tps` as a figure; `not_measured` without a bandwidth or the bytes."""
    if not bandwidth_bytes_per_s or not active_bytes:
        return missing("not_measured")
    conditions = {"bandwidth_bytes_per_s": bandwidth_bytes_per_s, "bytes_per_token": active_bytes + kv_bytes}
    return Figure(ceiling_tps(bandwidth_bytes_per_s, active_bytes, kv_bytes), n=1, conditions=conditions)


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
