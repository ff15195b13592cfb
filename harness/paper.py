"""What a variant needs of a memory system, and the most that one would give: arithmetic on bytes. Measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.hardware import Hardware
from harness.metrics.roofline import Traffic, ceiling_tps


@dataclass(frozen=True, slots=True)
class Need:
    """What a variant reads and holds.

    Attributes:
        name: The variant.
        reads: Bytes of one pass.
        holds_bytes: Weights of the model and of its draft, all experts included.
        kv_bytes: Of keys and values of one token, the draft's included, as the cache keeps them.
        ctx: Tokens of the cache.
        estimated: What of it is an estimate, in words; empty where all is from files' headers.
        speculates: Whether several tokens may come out of one pass.
    """

    name: str
    reads: Traffic
    holds_bytes: float
    kv_bytes: float
    ctx: int
    estimated: str = ""
    speculates: bool = False

    @property
    def total_bytes(self) -> float:
        """Weights and a full cache; buffers and the system come on top."""
        return self.holds_bytes + self.kv_bytes * self.ctx


def rows(needs: Sequence[Need], hardware: Sequence[Hardware]) -> list[dict[str, Any]]:
    """One row a variant as plain JSON, with one entry a device under ``on``.

    ``ceiling_tps`` is at an empty context and ``ceiling_tps_at_ctx`` at a full one; both are null for a variant that
    speculates, since how much is accepted is not known on paper.

    >>> from harness.hardware import choose
    >>> [row] = rows([Need("70b f16", Traffic(140e9), 140e9, 0.0, 4096)], choose(["h100-sxm"]))
    >>> round(row["on"][0]["ceiling_tps"]), row["on"][0]["fits"]
    (24, False)
    """
    return [_row(need, hardware) for need in needs]


def _row(need: Need, hardware: Sequence[Hardware]) -> dict[str, Any]:
    def on(one: Hardware) -> dict[str, Any]:
        at = [None if need.speculates else _ceiling(one, need, depth) for depth in (0, need.ctx)]
        fits = need.total_bytes <= one.memory_bytes
        return {"hardware": one.name, "fits": fits, "ceiling_tps": at[0], "ceiling_tps_at_ctx": at[1]}

    return {
        "variant": need.name,
        "bytes_per_token": need.reads.weight_bytes,
        "bytes_per_token_at_ctx": need.reads.at(need.ctx),
        "ctx": need.ctx,
        "needs_bytes": need.total_bytes,
        "estimated": need.estimated or None,
        "speculates": need.speculates,
        "on": [on(one) for one in hardware],
    }


def _ceiling(one: Hardware, need: Need, depth: int) -> float:
    return ceiling_tps(one.bandwidth_bytes_per_s, need.reads.weight_bytes, need.reads.kv_bytes(depth))


def described(one: Hardware) -> dict[str, Any]:
    """A device as plain JSON."""
    return {
        "name": one.name,
        "label": one.label,
        "count": one.count,
        "bandwidth_bytes_per_s": one.bandwidth_bytes_per_s,
        "memory_bytes": one.memory_bytes,
        "memory_up_to": one.up_to,
        "method": "calculated from bus width and transfer rate" if one.calculated else "stated by the vendor",
        "basis": "theoretical peak" + ("; ideal tensor parallelism" if one.count > 1 else ""),
        "source": one.source,
        "url": one.url,
    }
