"""Verbs that measure or prepare measuring: init, plan, sweep."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import app, guarded, places
from harness.errors import InputError

PRESETS = "smoke, quick, standard or full"
ConfigArg = Annotated[Path, typer.Argument(metavar="CONFIG", help="The configuration.", show_default=True)]
PresetOption = Annotated[str, typer.Option(metavar="PRESET", help=f"How much to run: {PRESETS}.")]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this variant, and the reference; may be given again. Default: all."),
]
SuiteOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only this suite; may be given again. Default: all configured.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", parser=places.given_path, help="Folder of the run. Default: reports/<run-id>."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        parser=places.given_path,
        help="Folder of data sets, mmlu/cais_mmlu in it. Default: $HARNESS_DATA.",
    ),
]
HardwareOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAMES",
        help="Ceilings on this hardware, on paper: h100-sxm,4xrtx4090,m3-max; may be given again. list: all names.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


@app.command()
@guarded
def sweep(
    config: ConfigArg = Path("variants.yaml"),
    preset: PresetOption = "quick",
    variant: VariantOption = None,
    suite: SuiteOption = None,
    out: OutOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the unfinished run; fail if there is none.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew, even where an unfinished run could go on.")
    ] = False,
    json: JsonOption = False,
    data: DataOption = None,
) -> None:
    """Measure every variant and write a report.

    Writes run.sqlite, results.json and report.html into the run's folder; the last line on stdout is that folder.
    Interrupted, it goes on where it stopped when the same command is given again.

    \b
    Example: only what two variants lose and gain, in a few minutes
      harness sweep --preset smoke --variant q8_0 --variant q4_0

    Exit codes: 0 done; 1 some cells failed (named on stderr, the rest is kept); 2 bad input.
    """
    if resume and fresh:
        raise InputError("--resume and --fresh exclude each other; give one of them")
    from harness.run.sweep import SweepOptions
    from harness.run.sweep import sweep as run_sweep

    outcome = run_sweep(
        SweepOptions(
            config_path=config,
            preset=preset,
            variants=tuple(variant or ()),
            suites=tuple(suite or ()),
            out=out,
            resume=resume,
            fresh=fresh,
            json=json,
            data=data,
            reports_dir=places.REPORTS,
        )
    )
    failed = [str(cell) for cell in outcome.failed_cells]
    for cell in failed:
        typer.echo(f"failed: {cell}", err=True)
    if json:
        typer.echo(jsonlib.dumps({"folder": str(outcome.folder), "failed_cells": failed}))
    else:
        typer.echo(str(outcome.folder))
    if failed:
        raise typer.Exit(1)


@app.command()
@guarded
def plan(
    config: ConfigArg = Path("variants.yaml"),
    preset: PresetOption = "quick",
    variant: VariantOption = None,
    suite: SuiteOption = None,
    json: JsonOption = False,
    hardware: HardwareOption = None,
    model_params: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="With --hardware: a model of so many parameters, 70e9 or 70B; no CONFIG is read."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="TYPES", help="With --model-params: its precisions. Default: f16.")
    ] = None,
    ctx: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, help="With --model-params: tokens of context. Default: 4096.")
    ] = None,
) -> None:
    """Show what a sweep would run and cost; run nothing.

    Time, memory and disk are estimates. With --hardware: instead, how fast memory bandwidth lets each variant decode
    at most on machines that are not here, and whether it fits.

    \b
    Example: what would the standard preset cost?
      harness plan --preset standard
    Example: how fast could these variants be elsewhere?
      harness plan --hardware h100-sxm,rtx4090,m3-max
      harness plan --hardware 2xh100-sxm --model-params 70e9 --weights f16,q4_k_m
    """
    _together(hardware, model_params, weights, ctx)
    if hardware:
        _on_paper(config, tuple(variant or ()), hardware, model_params, weights, ctx, json)
        return
    from harness.cli.planned import planned, render

    answer = planned(config, preset, tuple(variant or ()), tuple(suite or ()))
    if json:
        typer.echo(jsonlib.dumps(answer, allow_nan=False))
    else:
        render(answer)


def _together(hardware: list[str] | None, model_params: str | None, weights: str | None, ctx: int | None) -> None:
    """Raise InputError for options that do nothing without another."""
    if model_params is not None and not hardware:
        raise InputError("--model-params without --hardware; add for example --hardware h100-sxm")
    for name, value in (("--weights", weights), ("--ctx", ctx)):
        if value is not None and model_params is None:
            raise InputError(
                f"{name} without --model-params; a configuration says its own; add --model-params, or drop it"
            )


def _on_paper(
    config: Path,
    variants: tuple[str, ...],
    hardware: list[str],
    model_params: str | None,
    weights: str | None,
    ctx: int | None,
    json: bool,
) -> None:
    from harness.cli import paper

    show = paper.render
    if [text.strip().lower() for text in hardware] == ["list"]:
        answer, show = paper.listing(), paper.render_listing
    elif model_params is not None:
        answer = paper.of_params(model_params, weights or "f16", ctx or paper.CTX, hardware)
    else:
        answer = paper.of_config(config, variants, hardware)
    if json:
        typer.echo(jsonlib.dumps(answer, allow_nan=False))
    else:
        show(answer)


@app.command()
@guarded
def init(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File or folder to write to.")] = Path("variants.yaml"),
) -> None:
    """Write a starter variants.yaml; never overwrite one.

    \b
    Example:
      harness init mymodel/variants.yaml
    """
    target = path / "variants.yaml" if path.is_dir() else path
    text = places.starter().read_text(encoding="utf-8")
    # Editors read the schema's place from the first line; in a checkout it is a relative path.
    text = text.replace("$schema=harness/schema/variants.schema.json", f"$schema={places.variants_schema().as_uri()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError(f"{target}: already there and kept; give another path, or remove it first") from error
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}; give another path") from error
    typer.echo(str(target))
