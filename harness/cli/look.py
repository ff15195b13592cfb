"""Verbs that look at a machine, at model files or at a finished run: doctor, models, report, export."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli import app, guarded, models_app, places
from harness.errors import InputError, did_you_mean

RunArg = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, a run-id under reports/, or 'latest'.")]
FORMATS = ("csv", "parquet", "jsonl")


@app.command()
@guarded
def report(
    run: RunArg,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=places.given_path, help="Where to write. Default: report.html of the run."),
    ] = None,
) -> None:
    """Build a run's page again from its raw data.

    Prints the file it wrote.

    \b
    Example:
      harness report latest --out page.html
    """
    folder = places.run_folder(run)
    from harness.run.sweep import rebuild_report

    typer.echo(str(rebuild_report(folder, out and places.output_file(out))))


@app.command()
@guarded
def export(
    run: RunArg,
    format: Annotated[str, typer.Option(metavar="FORMAT", help="csv, parquet or jsonl.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=places.given_path,
            help="Where to write. Default: items.<format> in the run's folder.",
        ),
    ] = None,
) -> None:
    """Write a run's raw data for other tools.

    One row per measured item, its payload as JSON text. Prints the file it wrote.

    \b
    Example: into pandas
      harness export latest --format parquet
    """
    if format not in FORMATS:
        raise InputError(f"--format: unknown {format!r}; {did_you_mean(format, FORMATS)}")
    folder = places.run_folder(run)
    target = places.output_file(out or folder / f"items.{format}")
    from harness.store import Store

    store = Store.open(folder)
    try:
        _write(store.frame(), format, target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}; give another --out") from error
    finally:
        store.close()
    typer.echo(str(target))


def _write(frame: Any, format: str, target: Path) -> None:
    if format == "csv":
        frame.to_csv(target, index=False)
    elif format == "jsonl":
        frame.to_json(target, orient="records", lines=True, force_ascii=False)
    else:
        frame.to_parquet(target, index=False)


@app.command()
@guarded
def doctor(
    aa: Annotated[
        bool, typer.Option("--aa", help="Measure two identical variants instead: do they come out tied?")
    ] = False,
    runs: Annotated[int | None, typer.Option(metavar="N", help="With --aa: so many times. Default: 5.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=places.given_path,
            help="With --aa: twice the reference of this configuration. Default: demo at q4_0.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Say what can be measured here, and what cannot.

    Gives reasons and remedies; takes a few seconds and changes nothing.
    With --aa it takes about four minutes, and says what differences this machine can show.

    \b
    Example: can this machine tell a variant that is 3% faster?
      harness doctor --aa
    """
    if aa:
        _aa(runs, config, json)
        return
    if runs is not None or config is not None:
        raise InputError(
            f"{'--runs' if runs is not None else '--config'}: goes with --aa only; add --aa, or leave it out"
        )
    from harness.doctor import as_dicts, diagnose

    checks = as_dicts(diagnose())
    if json:
        typer.echo(jsonlib.dumps(checks, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found, why, and what to do")
    colours = {"ok": "green", "limited": "yellow", "missing": "red"}
    for check in checks:
        says = [check["found"], check["why"], f"-> {check['remedy']}" if check["remedy"] else ""]
        status = f"[{colours[check['status']]}]{check['status']}[/]"
        table.add_row(check["name"], status, _escape("\n".join(line for line in says if line)))
    Console(highlight=False).print(table)


def _aa(runs: int | None, config: Path | None, json: bool) -> None:
    if runs is not None and not 1 <= runs <= 1000:
        raise InputError(f"--runs {runs}: expected 1 to 1000")
    from harness.run import aa

    def say(line: str) -> None:
        typer.echo(line, err=True)

    said = aa.summary(aa.repeated(config, aa.RUNS if runs is None else runs, say))
    typer.echo(jsonlib.dumps(said, allow_nan=False) if json else aa.sentence(said))


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


@models_app.command("list")
@guarded
def models_list(json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False) -> None:
    """List the model files in the cache.

    \b
    Example:
      harness models list
    """
    from harness import models

    rows = models.listing()
    if json:
        typer.echo(jsonlib.dumps(rows, allow_nan=False))
        return
    if not rows:
        typer.echo(f"no model in {models.cache_dir()} yet; bring one: harness models add demo", err=True)
        return
    for row in rows:
        typer.echo(f"{row['name']}  {row['kind']}  {int(row['bytes']) / 1e6:.0f} MB\n  {row['path']}")


@models_app.command("add")
@guarded
def models_add(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="demo, path/to/model.gguf or hf:owner/repo[:file].")],
) -> None:
    """Fetch a model, check it and print its file.

    A file of your own stays where it is and is registered by its name.

    \b
    Example: before going offline
      harness models add demo
    """
    from harness import models

    typer.echo(str(models.add(model)))


@models_app.command("path")
@guarded
def models_path(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A model; its file is fetched if need be.")
    ] = None,
) -> None:
    """Print the folder of the cache, or the file of a model.

    \b
    Example: how much room does the cache take?
      du -sh "$(harness models path)"
    """
    from harness import models

    typer.echo(str(models.cache_dir() if model is None else models.find(model)))
