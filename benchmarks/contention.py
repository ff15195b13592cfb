"""One sweep, quiet and with a CPU burner switched on half way and left on: what is found, what ratios are worth.

``python -m benchmarks.contention`` runs the same small sweep (F16, Q8_0, Q4_0; speed only) quiet and disturbed in turn,
and prints which share of the trials beside the burner were marked, which share of the others were (false alarms),
the disturbed ratios over the quiet ones, how many of the quiet sweeps agree with each other within their own intervals,
how long each took, and what guarding the trials cost. ``--keep DIR`` keeps the sweeps' folders there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.burner import Burner, share_within
from benchmarks.overhead import overhead
from benchmarks.ratios import conclude, paired_ratio
from harness.run.collect import collect
from harness.stats.interval import wilson
from harness.store import Store

WEIGHTS = ("f16", "q8_0", "q4_0")
GOALS = {"affected trials found": 0.95}
LIMITS = {"false alarms": 0.05}
CLOSE = 0.03
CONFIG = """version: 1
model: demo
reference: f16
matrix: {{weights: [{weights}]}}
settings: {{ctx: 512{threads}}}
energy: {{meter: none}}
suites: {{speed: {{prompt_tokens: [16, 32], output_tokens: 32, rounds: {rounds}, most_rounds: {rounds}, depths: []}}}}
"""


@dataclass(frozen=True, slots=True)
class Swept:
    """One sweep.

    Attributes:
        ratios: Figure ``speedup`` by variant, as in results.json.
        beside, apart: Whether each trial was marked as contended: of those beside the burner for half their time or
            more, and of those it never met.
        cost: Where the time went.
        memory_gbs: Median memory bandwidth around its rounds, GB/s; on a shared host it moves, and ratios with it.
        seconds: Wall time.
    """

    ratios: Mapping[str, Mapping[str, Any]]
    beside: Sequence[bool]
    apart: Sequence[bool]
    cost: Mapping[str, float]
    memory_gbs: float
    seconds: float


def sweep(folder: Path, disturbed: bool, rounds: int) -> Swept:
    """Run it; once half of the planned rounds are behind it, a burner starts where asked for."""
    out, burner = folder / "run", Burner(bursts=False)
    command = [sys.executable, "-m", "harness", "sweep", str(folder / "variants.yaml"), "--out", str(out)]
    start = time.perf_counter()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while process.poll() is None:
                if disturbed and begun(out / "run.sqlite", rounds // 2):
                    burner.start()
                    disturbed = False
                time.sleep(0.5)
        finally:
            process.kill()
            process.wait()
            burner.stop()
    if process.returncode:
        raise SystemExit(f"the sweep failed: {(folder / 'log').read_text(errors='replace')[-800:]}")
    return judged(out, burner.spans, time.perf_counter() - start)


def begun(path: Path, number: int) -> bool:
    """Whether a run has begun a round; False while its file is being made."""
    if not path.exists():
        return False
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            found = db.execute("SELECT 1 FROM items WHERE kind = 'sentinel' AND key = ?", (f"{number:05d}-before",))
            return found.fetchone() is not None
    except sqlite3.OperationalError:
        return False


def judged(out: Path, spans: Sequence[tuple[int, int]], seconds: float) -> Swept:
    """What a finished sweep says, beside what is known of the burner."""
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    ratios = {each["name"]: each["metrics"]["speedup"] for each in results["variants"]}
    memory = results["quiet"]["sentinel"]["memory_bytes_s"]["median"] / 1e9
    store = Store.open(out)
    rows = [row for variant in collect(store).variants for row in variant.rows("speed", "trials")]
    store.close()
    beside, apart = marks(rows, spans)
    return Swept(ratios, beside, apart, overhead(out), memory, seconds)


def marks(rows: Sequence[Mapping[str, Any]], spans: Sequence[tuple[int, int]]) -> tuple[list[bool], list[bool]]:
    """Whether each trial is marked as contended: those beside the burner, and those apart from it."""
    beside, apart = [], []
    for row in rows:
        record = row["record"]
        share = share_within((record["sent_ns"], record["events"][-1][0]), spans)
        if share >= 0.5:
            beside.append("contended" in record["codes"])
        elif share == 0:
            apart.append("contended" in record["codes"])
    return beside, apart


def agreement(found: Sequence[Swept]) -> dict[str, Any] | None:
    """Of all pairs of sweeps and variants, the share whose ratios differ by no more than their intervals allow.

    Formula: ``|ln r1 - ln r2| <= sqrt(h1² + h2²)``, h half the interval's width in logarithms.
    """
    same = []
    for first, second in itertools.combinations(found, 2):
        for name in WEIGHTS[1:]:
            pair = [each.ratios[name] for each in (first, second)]
            if all(figure["low"] for figure in pair):
                halves = [math.log(figure["high"] / figure["low"]) / 2 for figure in pair]
                gap = abs(math.log(pair[0]["value"] / pair[1]["value"]))
                same.append(gap <= math.hypot(*halves))
    return share(same)


def share(said: Sequence[bool]) -> dict[str, Any] | None:
    """A share with Wilson's interval; None of nothing."""
    if not said:
        return None
    found = wilson(sum(said), len(said))
    return {"value": found.value, "low": found.low, "high": found.high, "n": found.n}


def figures(quiet: Sequence[Swept], disturbed: Sequence[Swept]) -> dict[str, Any]:
    """All figures of both conditions."""
    rows: dict[str, Any] = {
        "affected trials found": share([mark for each in disturbed for mark in each.beside]),
        "false alarms": share([mark for each in quiet for mark in each.apart]),
        "false alarms before the burner": share([mark for each in disturbed for mark in each.apart]),
    }
    for name in WEIGHTS[1:]:
        for condition, found in (("quiet", quiet), ("disturbed", disturbed)):
            for number, each in enumerate(found):
                rows[f"{name} over {WEIGHTS[0]}, {condition} {number + 1}"] = each.ratios[name]
        values = [[each.ratios[name]["value"] for each in found] for found in (disturbed, quiet)]
        complete = all(value is not None for row in values for value in row)
        rows[f"{name}: disturbed over quiet"] = paired_ratio(*values) if complete else None
    for condition, found in (("quiet", quiet), ("disturbed", disturbed)):
        for number, each in enumerate(found):
            rows[f"memory, {condition} {number + 1}, GB/s"] = each.memory_gbs
    rows["quiet sweeps that agree within their intervals"] = agreement(quiet)
    for condition, found in (("quiet", quiet), ("disturbed", disturbed)):
        rows[f"seconds, {condition}"] = float(np.median([each.seconds for each in found]))
        cost = float(np.median([each.cost["share_of_sweep"] for each in found]))
        rows[f"share of the sweep spent on guarding trials, {condition}"] = cost
    return rows


def bounds() -> tuple[dict[str, float], dict[str, float]]:
    """Goals and limits: ratios may be 3% off either way."""
    ratios = [f"{name}: disturbed over quiet" for name in WEIGHTS[1:]]
    return GOALS | dict.fromkeys(ratios, 1 - CLOSE), LIMITS | dict.fromkeys(ratios, 1 + CLOSE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each condition")
    parser.add_argument("--rounds", type=int, default=30, help="of each sweep")
    parser.add_argument("--threads", type=int, help="of the engine; default: all usable cores")
    parser.add_argument("--keep", type=Path, help="folder in which the sweeps' folders stay")
    args = parser.parse_args()
    if args.runs < 1 or args.rounds < 2:
        parser.error(f"--runs {args.runs} --rounds {args.rounds}; expected 1 and 2 at least")
    console = Console(stderr=True)
    threads = f", threads: {args.threads}" if args.threads else ""
    config = CONFIG.format(weights=", ".join(WEIGHTS), threads=threads, rounds=args.rounds)
    found: dict[bool, list[Swept]] = {False: [], True: []}
    for number in range(args.runs):
        for disturbed in (False, True) if number % 2 == 0 else (True, False):
            condition = "disturbed" if disturbed else "quiet"
            with tempfile.TemporaryDirectory() as name:
                folder = args.keep / f"{condition}-{number + 1}" if args.keep else Path(name)
                folder.mkdir(parents=True, exist_ok=not args.keep)
                (folder / "variants.yaml").write_text(config, encoding="utf-8")
                found[disturbed].append(sweep(folder, disturbed, args.rounds))
            seconds = found[disturbed][-1].seconds
            console.print(f"{condition} {number + 1}/{args.runs}: {seconds:.0f} s", highlight=False)
    title = f"a sweep of {len(WEIGHTS)} variants, quiet and with a CPU burner from half way on, {args.runs} runs each"
    return conclude("contention", title, figures(found[False], found[True]), *bounds())


if __name__ == "__main__":
    raise SystemExit(main())
