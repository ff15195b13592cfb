"""What staying true costs: where the time of a finished sweep went, from its rows.

``python -m benchmarks.overhead RUN`` reads RUN/run.sqlite and prints the seconds spent on trials that count, and on
what guards them: warm-ups, repeated attempts, waiting for quiet, rounds run again, and the sentinel with everything
else between two trials. A sweep that was interrupted counts the break among the last.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ratios import conclude
from harness.run.collect import collect
from harness.store import Store

GUARDS = ("warm_ups_s", "repeats_s", "waits_s", "again_s", "sentinels_s")


def overhead(folder: Path) -> dict[str, float]:
    """Seconds by purpose, and what guards trials as a share of the speed suite's trials and of the whole sweep.

    Raises:
        InputError: There is no run.
    """
    store = Store.open(folder)
    try:
        run, cells = collect(store), store.cells()
    finally:
        store.close()
    trials = [row for variant in run.variants for row in variant.rows("speed", "trials")]
    counted = [row for variant in run.variants for row in variant.timed()]
    loads = [row for variant in run.variants for row in variant.rows("engine", "load")]
    spent = sum(cell.seconds for cell in cells if (cell.suite, cell.part) == ("speed", "trials"))
    whole = sum(cell.seconds for cell in cells)
    return shares(trials, counted, loads, run.facts["sentinels"], spent, whole)


def shares(
    trials: Sequence[Mapping[str, Any]],
    counted: Sequence[Mapping[str, Any]],
    loads: Sequence[Mapping[str, Any]],
    sentinels: Sequence[Mapping[str, Any]],
    spent_s: float,
    cells_s: float,
) -> dict[str, float]:
    """The same from rows.

    Args:
        trials: Every stored trial.
        counted: Those of them that count.
        loads: One row for each loaded engine.
        sentinels: Readings around rounds.
        spent_s: Wall time in trials, all attempts and waits included.
        cells_s: Wall time in all cells of the sweep.
    """

    def wall(rows: Sequence[Mapping[str, Any]]) -> float:
        return float(sum(row["contention"]["wall_s"] for row in rows))

    waits = float(sum(row.get("waited_s", 0.0) for row in trials))
    starts = [row["record"]["sent_ns"] for row in trials] + [row["t_ns"] for row in sentinels]
    ends = [row["record"]["events"][-1][0] for row in trials if row["record"]["events"]]
    span = (max([*starts, *ends], default=0) - min(starts, default=0)) / 1e9
    warm = [row["warm"]["seconds"] for row in loads if row.get("warm")]
    found = {
        "trials_s": wall(counted),
        "warm_ups_s": float(sum(map(sum, warm))),
        "repeats_s": max(0.0, spent_s - wall(trials) - waits),
        "waits_s": waits,
        "again_s": wall(trials) - wall(counted),
        "sentinels_s": max(0.0, span - spent_s),
    }
    loading = float(sum(row.get("load_s") or 0.0 for row in loads))
    guards = sum(found[key] for key in GUARDS)
    found["sweep_s"] = cells_s + loading + found["warm_ups_s"] + found["sentinels_s"]
    return found | {
        "share_of_trials": guards / (guards + found["trials_s"]) if found["trials_s"] else 0.0,
        "share_of_sweep": guards / found["sweep_s"] if found["sweep_s"] else 0.0,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished sweep")
    args = parser.parse_args()
    return conclude("overhead", f"where the time of {args.run} went", overhead(args.run), {})


if __name__ == "__main__":
    raise SystemExit(main())
