"""Which folder a sweep writes to: the unfinished run of the same plan, or a new one. Measures nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.errors import InputError
from harness.run.prepare import Prepared, SweepOptions
from harness.store import RunLock, Store


@dataclass(slots=True)
class RunFolder:
    """A run's folder, locked for us.

    Attributes:
        resumed: Whether rows of an earlier attempt are in it.
    """

    path: Path
    store: Store
    lock: RunLock
    resumed: bool


def open_folder(options: SweepOptions, prepared: Prepared, now: datetime) -> RunFolder:
    """Find the run to go on with, or make a new one.

    Raises:
        InputError: ``--resume`` without anything to resume, the folder is in use, or holds another run.
    """
    if options.out is not None:
        return _given(options.out, options, prepared, now)
    suffix = prepared.fingerprint[:8]
    found = sorted(options.reports_dir.glob(f"*-{suffix}/run.sqlite"), reverse=True)
    for path in [] if options.fresh else found:
        store = Store.open(path)
        done = store.get("state") == "complete"
        store.close()
        if not done or options.resume:
            return _take(path.parent, resumed=True)
    if options.resume:
        raise InputError(
            f"--resume: {options.reports_dir} holds no run of this plan on this machine; leave --resume out to start"
        )
    return _new(options.reports_dir / f"{now:%Y%m%d-%H%M%S}-{suffix}", prepared, now)


def check_folder(options: SweepOptions) -> None:
    """What can be told of the folder before anything is prepared, which may take minutes.

    Raises:
        InputError: It cannot be made or written, or there is nothing to resume in it.
    """
    if options.resume and options.fresh:
        raise InputError("--resume and --fresh exclude each other; give one")
    folder = options.out or options.reports_dir
    try:
        above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror}); choose another folder with --out") from error
    if not above.is_dir():
        raise InputError(f"{folder}: {above} is a file; expected a folder, new or of an earlier run; correct --out")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: {above} is not writable; choose another folder with --out")
    if options.resume and options.out is not None and not (folder / "run.sqlite").exists():
        raise InputError(f"--resume: {folder} holds no run; leave --resume out to start one")


def _given(folder: Path, options: SweepOptions, prepared: Prepared, now: datetime) -> RunFolder:
    if not (folder / "run.sqlite").exists():
        return _new(folder, prepared, now)
    if options.fresh:
        lock = RunLock(folder)
        _put_aside(folder, now)
        lock.release()
        return _new(folder, prepared, now)
    taken = _take(folder, resumed=True)
    if taken.store.get("fingerprint") != prepared.fingerprint:
        taken.store.close()
        taken.lock.release()
        raise InputError(
            f"--out {folder}: holds a run of another plan or machine; choose another folder, or --fresh to put it aside"
        )
    return taken


def _put_aside(folder: Path, now: datetime) -> None:
    """Keep an earlier run beside the new one; nothing is deleted."""
    aside = folder / f"earlier-{now:%Y%m%d-%H%M%S}"
    aside.mkdir()
    for name in ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "report.html", "results.json", "logs"):
        if (folder / name).exists():
            (folder / name).rename(aside / name)


def _take(folder: Path, resumed: bool) -> RunFolder:
    lock = RunLock(folder)
    return RunFolder(folder, Store.create(folder / "run.sqlite"), lock, resumed)


def _new(folder: Path, prepared: Prepared, now: datetime) -> RunFolder:
    taken = _take(folder, resumed=False)
    taken.store.put("run_id", folder.resolve().name)
    taken.store.put("created", now.isoformat(timespec="seconds"))
    taken.store.put("fingerprint", prepared.fingerprint)
    taken.store.put("state", "running")
    return taken
