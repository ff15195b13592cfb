"""Two identical variants under different names must come out tied, on a quiet machine and beside a noisy neighbour.

``python -m benchmarks.aa`` measures them as ``harness doctor --aa`` does, in turn quiet and with a process beside it
that burns CPU in bursts, and counts how often the sweep's own verdict calls them alike. It also prints how far the two
ended up apart, how many trials others disturbed for good, how many attempts were repeated, and the seconds of a run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.burner import Burner
from benchmarks.ratios import conclude
from harness.run.aa import GOAL, ROUNDS, Outcome, once, summary, twins


def figures(condition: str, found: Sequence[Outcome]) -> Iterator[tuple[str, Any]]:
    """The figures of one condition."""
    said = summary(found)
    logs = [abs(math.log(each.ratio.value)) for each in found if each.ratio.value]
    ranking = sum(each.ratio.ranks for each in found)
    yield f"tied, {condition}", said["tied"]
    yield f"median |ln ratio|, {condition}", float(np.median(logs)) if logs else None
    yield f"largest |ln ratio|, {condition}", max(logs, default=None)
    yield f"smallest difference that would be seen, {condition}", said["smallest_difference"]
    yield f"runs whose ratio would rank, {condition}", ranking / len(found)
    yield f"contended trials, {condition}", said["contended_trials"] / max(1, said["trials"])
    yield f"repeats over trials, {condition}", said["repeats"] / max(1, said["trials"])
    yield f"rounds run again, {condition}", said["rounds_again"] / (len(found) * ROUNDS)
    yield f"seconds a run, {condition}", float(np.median([each.seconds for each in found]))


def measure(args: argparse.Namespace, conditions: Sequence[str], console: Console) -> Mapping[str, list[Outcome]]:
    """All runs, the conditions in turn."""
    found: dict[str, list[Outcome]] = {condition: [] for condition in conditions}
    prepared = twins(args.config, ROUNDS, lambda line: console.print(line, highlight=False))
    with closing(prepared.energy):
        for number in range(args.runs):
            for condition in conditions if number % 2 == 0 else reversed(conditions):
                with Burner(bursts=True, seed=number) if condition == "noisy" else nullcontext():
                    each = once(prepared, number)
                found[condition].append(each)
                verdict = "tied" if each.tied else "NOT tied"
                said = f"run {number + 1}/{args.runs} {condition}: {verdict}, {each.ratio.value}, {each.seconds:.0f} s"
                console.print(said, highlight=False)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="of each condition")
    parser.add_argument("--config", type=Path, help="twice the reference of this variants.yaml; default: demo at q4_0")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--quiet", action="store_true", help="only quiet")
    only.add_argument("--noisy", action="store_true", help="only beside a neighbour")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error(f"--runs {args.runs}; expected 1 or more")
    conditions = ["quiet"] * (not args.noisy) + ["noisy"] * (not args.quiet)
    found = measure(args, conditions, Console(stderr=True))
    rows = dict(row for condition in conditions for row in figures(condition, found[condition]))
    goals = {f"tied, {condition}": GOAL for condition in conditions}
    return conclude("aa", f"identical variants, {args.runs} runs of {ROUNDS} rounds each", rows, goals)


if __name__ == "__main__":
    raise SystemExit(main())
