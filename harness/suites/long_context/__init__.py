"""Long context without a judge: a ledger of facts that change, forced choices at several depths, repetition."""

from __future__ import annotations

from harness.suites.long_context.score import at_chance, depth_series, figures
from harness.suites.long_context.text import Kind, Probe, Text, generate

__all__ = ["Kind", "Probe", "Text", "at_chance", "depth_series", "figures", "generate"]
