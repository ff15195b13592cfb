"""How energy is to be measured, as ``variants.yaml`` says it. Knows no meter."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from harness.settings import Model


class EnergySettings(Model):
    """How energy is measured. With ``meter: command``, any program that prints ``t_s,watts`` lines."""

    meter: Literal["auto", "rapl", "nvml", "zeus", "command", "none"] = Field(
        "auto", description="auto: every counter that can be read here; none: energy is not measured"
    )
    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Strict(False)] | None = Field(
        None, description="program and arguments, run without a shell in this file's folder; prints 't_s,watts' lines"
    )
    scope: str | None = Field(None, min_length=1, description="what the command's meter covers, e.g. wall")
    seconds: Annotated[float, Field(gt=0, le=300)] | None = Field(
        None, description="least length of a window; default: 1 rapl, 5 nvml and zeus, 10 command"
    )
