"""Where things are: runs, the starter configuration, the published schema. Creates nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from harness.errors import InputError, did_you_mean

REPORTS = Path("reports")
_DATA = ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "results.json", ".lock")
_PACKAGE = Path(__file__).resolve().parent.parent


def run_folder(run: str, reports: Path = REPORTS) -> Path:
    """The folder of a run: a path, a run-id under ``reports/``, or 'latest'.

    Raises:
        InputError: There is no such run.
    """
    if not run:
        raise InputError("RUN: empty; expected a run's folder, a run-id under reports/, or latest")
    if run == "latest":
        runs = [folder for folder in reports.glob("*") if _is_run(folder)]
        if not runs:
            raise InputError(f"{reports}/: no run here yet; measure one: harness sweep")
        return max(runs, key=lambda folder: (_changed(folder), folder.name))
    for folder in (Path(run), reports / run):
        if _is_run(folder):
            return folder
        if folder.name in ("run.sqlite", "results.json", "report.html") and _is_run(folder.parent):
            return folder.parent
    known = [folder.name for folder in reports.glob("*") if _is_run(folder)]
    hint = f"; {did_you_mean(run, [*known, 'latest'])}" if known else "; measure one: harness sweep"
    raise InputError(f"{run}: no such run; expected a run's folder, a run-id under {reports}/, or latest{hint}")


def given_path(text: str) -> Path:
    """A path option. Path("") would be the current folder, which nobody means who gives an empty text."""
    if not text:
        raise typer.BadParameter("empty; expected a path")
    return Path(text)


def output_file(path: Path) -> Path:
    """A file that may be written: no folder, and no run's own data.

    Raises:
        InputError: It may not.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder; expected a file to write")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: {path.parent} is no folder; make it, or give another --out")
    if path.resolve().name in _DATA:
        raise InputError(f"{path}: would replace a run's data; give another --out")
    return path


def _is_run(folder: Path) -> bool:
    return (folder / "run.sqlite").is_file() or (folder / "results.json").is_file()


def _changed(folder: Path) -> float:
    files = (folder / "run.sqlite", folder / "results.json")
    return max(file.stat().st_mtime for file in files if file.is_file())


def results_of(run: str, reports: Path = REPORTS) -> dict[str, Any]:
    """The ``results.json`` of a run.

    Raises:
        InputError: No such run, no results in it, or not strict JSON.
    """
    file = run_folder(run, reports) / "results.json"
    if not file.is_file():
        raise InputError(f"{file}: not there, so the sweep has not finished; run it again to resume, then ask again")
    try:
        results = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise InputError(f"{file}: not strict JSON ({message}); rebuild it: harness report {file.parent}") from error
    if not isinstance(results, dict) or not isinstance(results.get("variants"), list):
        raise InputError(f"{file}: no variants in it; expected the results of a sweep")
    _check_shape(file, results)
    return results


def _check_shape(file: Path, results: dict[str, Any]) -> None:
    """What deciding reads of the results has its published shape."""
    from pydantic import TypeAdapter, ValidationError

    from harness.schemas import VariantResult

    try:
        TypeAdapter(list[VariantResult]).validate_python(results["variants"])
        TypeAdapter(dict[str, dict[str, Any]]).validate_python(results.get("suites", {}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{file}: not results of a sweep ({place}: {first['msg']}); rebuild it: harness report {file.parent}"
        ) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def starter() -> Path:
    """The starter configuration: inside an installed package, or at the top of a checkout."""
    for file in (_PACKAGE / "_starter" / "variants.yaml", _PACKAGE.parent / "variants.yaml"):
        if file.is_file():
            return file
    raise InputError("this installation has no starter variants.yaml; install the package again")


def variants_schema() -> Path:
    """The published JSON Schema of ``variants.yaml``."""
    return _PACKAGE / "schema" / "variants.schema.json"
