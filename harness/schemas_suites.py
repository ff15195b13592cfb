"""The published shape of what results.json says of single suites: MMLU by field, and what each suite cost."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Open(BaseModel):
    """Open: what is named here must fit; more may stand beside it."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class MmluResult(_Open):
    """MMLU of one variant: overall, by field and by subject, each compared with the reference."""

    shared: bool = Field(description="another variant's identical scores serve")
    overall: dict[str, Any] = Field(description="accuracy, and paired: null where there is nothing to compare")
    fields: dict[str, dict[str, Any]] = Field(description="the same by field: STEM, humanities, social sciences, other")
    subjects: dict[str, dict[str, int]] = Field(description="correct and n")


class Cost(_Open):
    """Wall time and items of one part of a suite for one variant."""

    variant: str
    suite: str
    part: str
    state: str
    shared: bool
    seconds: float | None = Field(description="all attempts, loading apart; null where shared or not recorded")
    items: int
    items_per_s: float | None
    unit: str = Field(description="what an item is")
