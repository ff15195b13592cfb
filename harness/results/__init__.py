"""results.json from a run's rows: figures, fronts, the decision, the claims. Pure; an old run can be derived again."""

from __future__ import annotations

from harness.results.assemble import derive

__all__ = ["derive"]
