"""The verb that decides: choose. The rules themselves are in ``harness.decide.choose``."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated, Any

import typer

from harness.cli import app, guarded, places
from harness.cli.look import RunArg
from harness.errors import InputError, NoVariantQualifies


@app.command()
@guarded
def choose(
    run: RunArg,
    require: Annotated[
        list[str] | None, typer.Option(metavar="EXPR", help="A bound, e.g. 'ttft_s<=200ms'; may be given again.")
    ] = None,
    max_loss: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=AMOUNT", help="How much worse than the reference is fine, e.g. mmlu_acc=1pt."),
    ] = None,
    minimize: Annotated[str | None, typer.Option(metavar="KEY", help="Choose the lowest, e.g. ttft_s.")] = None,
    maximize: Annotated[str | None, typer.Option(metavar="KEY", help="Choose the highest, e.g. decode_tps.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Name the variant to deploy, by your wish.

    Prints it, why the others lost, and the command that deploys it. Bounds are tested on the bad end of the
    interval, so a variant qualifies only where the data show it. Exit code 3 where none does. Without any option:
    the fastest decoding among variants whose quality is shown to be as good as the reference's.

    \b
    Example: the fastest that loses at most one point of MMLU, in at most 1 GB
      harness choose latest --max-loss mmlu_acc=1pt --require 'peak_rss_bytes<=1GB' --maximize decode_tps
    """
    from harness.decide.choose import decide
    from harness.decide.view import speculation_faults
    from harness.decide.wish import default_wish, make_wish

    results = places.results_of(run)
    objective = minimize if maximize is None else maximize
    if maximize is not None and minimize is not None:
        raise InputError("choose: found both --minimize and --maximize; expected one of them; drop one")
    if objective is not None:
        wish = make_wish(require or (), max_loss or (), objective=objective, maximize=maximize is not None)
    elif require or max_loss:
        raise InputError("choose: limits without a goal; expected --minimize KEY or --maximize KEY; add one")
    else:
        wish = default_wish(results)
    answer = decide(results, wish)
    chosen = [variant for variant in results["variants"] if variant["name"] == answer["choice"]]
    found = chosen[0] if chosen else {}
    answer = {**answer, "deploy": found.get("deploy"), "deploy_needs": found.get("deploy_needs")}
    if json:
        typer.echo(jsonlib.dumps(answer, allow_nan=False))
    else:
        _render(answer, speculation_faults(results["variants"]))
    if answer["choice"] is None:
        raise typer.Exit(NoVariantQualifies.exit_code)


def _render(answer: dict[str, Any], fault: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"wish: {answer['wish']}", markup=False)
    console.print(f"choice: {answer['choice'] or 'none'}", markup=False)
    console.print(answer["reason"], markup=False)
    if fault:
        console.print(f"FAULT: {fault}", markup=False, style="red")
    if answer["losers"]:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("variant", no_wrap=True)
        table.add_column("why it lost")
        for loser in answer["losers"]:
            table.add_row(str(loser["name"]), str(loser["why"]).replace("[", r"\["))
        console.print(table)
    if answer["deploy"]:
        # Not through rich: a command that is wrapped to the terminal's width cannot be pasted.
        needs = f" (needs {answer['deploy_needs']})" if answer["deploy_needs"] else ""
        typer.echo(f"deploy{needs}:")
        typer.echo(f"  {answer['deploy']}")
