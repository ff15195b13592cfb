"""The command line: reads arguments, calls what does the work, prints. Decides nothing about measuring.

Everything heavy is imported inside the verbs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from harness import __version__
from harness.errors import HarnessError, InputError, one_line

_P = ParamSpec("_P")
_R = TypeVar("_R")

INTERRUPTED = "interrupted; run the same command again to resume"

# In the order a person needs them.
_VERBS = ("init", "plan", "sweep", "report", "choose", "doctor", "models", "export")


class _Verbs(TyperGroup):
    """Lists the verbs in their own order instead of the order of imports."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs."""
        return sorted(super().list_commands(ctx), key=_VERBS.index)


app = typer.Typer(
    name="harness",
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
models_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The cache of model files.")
app.add_typer(models_app, name="models")


def guarded(verb: Callable[_P, _R]) -> Callable[_P, _R]:
    """Ends a verb that meets a HarnessError with its message on stderr and its exit code, without a traceback.

    So does an error of the system that no one could say more about: a path that is too long, a full disk.
    """

    @functools.wraps(verb)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return verb(*args, **kwargs)
        except HarnessError as error:
            typer.echo("\n".join(map(one_line, str(error).split("\n"))), err=True)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read our output has gone; typer ends without a word
                raise
            where = f"{error.filename}: " if error.filename else ""
            typer.echo(one_line(f"{where}{error.strerror or error}; check the path, its rights and the disk"), err=True)
            raise typer.Exit(InputError.exit_code) from error
        except KeyboardInterrupt as error:
            typer.echo(f"\n{INTERRUPTED}", err=True)
            raise typer.Exit(130) from error

    return run


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure every variant of a language model for speed, energy and quality, and choose one to deploy.

    \b
    Start with:
      harness init        write a variants.yaml to edit
      harness plan        see what would run and what it would cost
      harness sweep       measure; ends with an HTML report
      harness choose latest --max-loss mmlu_acc=1pt --maximize decode_tps

    Exit codes: 0 done; 1 some cells failed; 2 bad input; 3 no variant qualifies.
    """


def main() -> None:
    """Run the command line; ends the process with the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None where it was closed
            stream.reconfigure(errors="replace")  # a locale without ± and ≥ shows ?
    try:
        app()
    except KeyboardInterrupt:
        # Outside of a verb: while arguments are read or modules are imported.
        print(f"\n{INTERRUPTED}", file=sys.stderr)
        sys.exit(130)


# Imported last: these modules register their verbs on the app above.
from harness.cli import decide, look, measure  # noqa: E402, F401
