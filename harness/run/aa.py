"""A against A: two identical variants under different names, measured and judged as any two variants of a sweep.

Each run loads both anew, each in its own worker, takes them through the sweep's rounds in a folder of its own, and asks
the sweep's statistics whether they can be told apart. They must not be; how narrow the interval of their ratio is says
what differences this machine can show.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

from harness.decide import pareto
from harness.errors import CellError, InputError
from harness.meters.memory import available_bytes
from harness.metrics import speed
from harness.metrics.catalog import METRICS
from harness.plan import cells
from harness.record import Figure
from harness.results.model import RunData
from harness.run.clock import now_ns
from harness.run.collect import collect
from harness.run.fit import check_memory
from harness.run.prepare import Prepared, SweepOptions, prepare
from harness.run.progress import Meter
from harness.run.session import Session
from harness.run.timed import run_speed
from harness.stats.compare import Launches
from harness.stats.interval import wilson
from harness.store import CellRow, Store
from harness.suite_plans import SuitePlan

# About four minutes on the default model and two cores.
RUNS = 5
PROMPTS, TOKENS, ROUNDS = (16, 32), 48, 10
TWINS = ("a", "b")
GOAL = 0.95
DEMO = (
    "version: 1\nmodel: demo\nreference: q4_0\nmatrix: {weights: [q4_0]}\nsettings: {ctx: 512}\nsuites: {speed: {}}\n"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run.

    Attributes:
        tied: Whether the sweep calls the two alike in decode speed: within the catalogue's tolerance, or not shown
            to differ.
        ratio: Decode rate of the second over the first's, paired by round.
        ttft_ratio: The same for the time to the first token.
        smallest_difference: Below it, relative, a difference would have gone unseen: half the interval by which a front
            tells variants apart, at least the catalogue's tolerance.
        trials, contended, repeats: Trials that count, those of them that others disturbed, attempts beyond the first.
        again: Rounds run again, as the machine's own speed moved during them.
        seconds: Wall time, loading included.
    """

    tied: bool
    ratio: Figure
    ttft_ratio: Figure
    smallest_difference: float
    trials: int
    contended: int
    repeats: int
    again: int
    seconds: float


def twins(config: Path | None, rounds: int, say: Callable[[str], None]) -> Prepared:
    """Two variants with all settings of a configuration's reference (None: the default model at q4_0).

    The caller closes ``energy``.

    Raises:
        InputError, ConfigError: The configuration is wrong, or two of it do not fit into memory.
    """
    from harness.load import load

    with tempfile.TemporaryDirectory() as folder:
        path = config or Path(folder) / "variants.yaml"
        if config is None:
            path.write_text(DEMO, encoding="utf-8")
        loaded = load(path)
        if loaded.suites.speed is None:
            raise InputError(f"{path}: suites leaves out speed, which --aa measures; add it: suites: {{speed: {{}}}}")
        one = prepare(SweepOptions(path, variants=(loaded.reference,), suites=("speed",)), say)
    try:
        return _doubled(one, rounds)
    except BaseException:
        one.energy.close()
        raise


def _doubled(one: Prepared, rounds: int) -> Prepared:
    own, plan = one.reference, one.suites.speed
    assert plan is not None
    # A sweep refuses twins. The name of one, where no engine looks, keeps their cells apart.
    variants = tuple(replace(own, name=name, reference=name == TWINS[0]) for name in TWINS)
    spec = one.specs[own.name]
    specs = {name: replace(spec, extra={**spec.extra, "twin": name}) for name in TWINS}
    short = replace(plan, prompt_tokens=PROMPTS, output_tokens=TOKENS, rounds=rounds, most_rounds=rounds, depths=())
    suites = SuitePlan("aa", speed=replace(short, energy_windows=0))
    check_memory(specs, suites, available_bytes())
    models = dict.fromkeys(TWINS, one.models[own.name])
    planned = cells(variants, suites, specs)
    return replace(one, preset="aa", suites=suites, variants=variants, specs=specs, models=models, cells=planned)


def measured(prepared: Prepared, folder: Path, console: Console) -> RunData:
    """Measure the speed of prepared variants in a folder, as a sweep does; returns the rows.

    Raises:
        CellError: An engine failed.
    """
    store = Store.create(folder / "run.sqlite")
    try:
        for position, variant in enumerate(prepared.variants):
            store.add_variant(position, prepared.row(variant))
        for cell in prepared.cells:
            store.add_cell(CellRow(str(cell.id), cell.suite, cell.part, cell.variant), [cell.variant])
        session = Session(prepared, store, folder, Meter(0.0, console), {})
        try:
            run_speed(session)
        finally:
            session.pool.close()
        if session.failures:
            raise CellError("; ".join(f"{name}: {error}" for name, _, error in session.failures))
        return collect(store)
    finally:
        store.close()


def once(prepared: Prepared, seed: int) -> Outcome:
    """One run with an order and prompts of its own.

    Raises:
        CellError: An engine failed.
    """
    plan = prepared.suites.speed
    assert plan is not None
    seeded = replace(prepared, suites=replace(prepared.suites, speed=replace(plan, seed=seed)))
    fresh = replace(seeded, cells=cells(seeded.variants, seeded.suites, seeded.specs))
    start = now_ns()
    with tempfile.TemporaryDirectory() as folder:
        run = measured(fresh, Path(folder), Console(quiet=True))
    return outcome(run, (now_ns() - start) / 1e9)


def outcome(run: RunData, seconds: float) -> Outcome:
    """The sweep's verdict on the first two variants of a run.

    Raises:
        CellError: No round can be compared.
    """
    first, second = (variant.trials() for variant in run.variants)
    launched = run.launches
    rows = [row for variant in run.variants for row in variant.timed()]
    ratio = speed.speedup(second, first, launched["decode_tps"])
    if ratio.value is None:
        raise CellError(f"the two cannot be compared in any round: {', '.join(ratio.reasons)}")
    alike, least = told_apart(speed.block_log_ratios("decode_tps", second, first), "decode_tps", launched["decode_tps"])
    return Outcome(
        tied=alike,
        ratio=ratio,
        ttft_ratio=speed.ttft_ratio(second, first, launched["ttft_s"]),
        smallest_difference=least,
        trials=len(rows),
        contended=sum("contended" in row["record"]["codes"] for row in rows),
        repeats=sum(row["attempt"] - 1 for row in rows),
        again=len(run.variants[0].dropped),
        seconds=seconds,
    )


def told_apart(log_ratios: dict[int, float], key: str, launched: Launches) -> tuple[bool, float]:
    """Whether a front groups two variants as tied, from ln(ratio) by round, and what difference it would have seen.

    Formula of the latter: ``max(ln((1 + high) / (1 + low)) / 2, tolerance)`` of the interval of their difference.
    """
    blocks = np.array([[0.0] * len(log_ratios), list(log_ratios.values())])
    draws = pareto.joint_draws(blocks, np.zeros((2, 1)), launched=launched)[:, :, 1:]
    low, _, high = pareto.difference(draws[:, 1, 0], draws[:, 0, 0], key)
    return bool(pareto.tied(TWINS, draws, [key])), max(math.log((1 + high) / (1 + low)) / 2, METRICS[key].tolerance)


def repeated(config: Path | None, runs: int, say: Callable[[str], None]) -> list[Outcome]:
    """So many runs, one after the other; ``say`` is told what is being done."""
    prepared = twins(config, ROUNDS, say)
    found = []
    with closing(prepared.energy):
        for number in range(runs):
            found.append(once(prepared, number))
            last = found[-1]
            say(f"run {number + 1}/{runs}: {'tied' if last.tied else 'NOT tied'}, ratio {_interval(last.ratio)}")
    return found


def summary(found: Sequence[Outcome]) -> dict[str, Any]:
    """The verdict over all runs, as plain JSON: how many tied, the spread of the ratio, what can be seen here."""
    share = wilson(sum(each.tied for each in found), len(found))
    ratios = [each.ratio.value for each in found if each.ratio.value is not None]
    return {
        "tied": {"value": share.value, "low": share.low, "high": share.high, "n": share.n},
        "lowest_ratio": min(ratios, default=None),
        "highest_ratio": max(ratios, default=None),
        "smallest_difference": median(each.smallest_difference for each in found),
        "contended_trials": sum(each.contended for each in found),
        "trials": sum(each.trials for each in found),
        "repeats": sum(each.repeats for each in found),
        "rounds_again": sum(each.again for each in found),
        "runs": [asdict(each) for each in found],
    }


def sentence(said: dict[str, Any]) -> str:
    """What a summary means, for people."""
    share, width = said["tied"], said["smallest_difference"]
    lines = [
        f"Two identical variants under different names: tied in {round(share['value'] * share['n'])} of {share['n']} "
        f"runs (95% interval of the share: {share['low']:.0%} to {share['high']:.0%})."
    ]
    if said["lowest_ratio"] is not None:
        lines.append(
            f"Their ratio of decode speeds lay between {said['lowest_ratio']:.3f} and {said['highest_ratio']:.3f}."
        )
    more = "Four times as many rounds halve that." if width >= 2 * METRICS["decode_tps"].tolerance else ""
    lines.append(
        f"{ROUNDS} rounds show a difference of {width:.1%} or more on this machine; "
        f"a smaller one counts as none. {more}".rstrip()
    )
    if said["contended_trials"]:
        lines.append(f"Other programs disturbed {said['contended_trials']} of {said['trials']} trials, even repeated.")
    if share["high"] < GOAL:
        lines.append("Far fewer ties than 95 in 100: do not trust small differences measured on this machine as it is.")
    elif share["value"] < GOAL:
        lines.append("Fewer ties than 95 in 100, which may be chance; more runs (--runs) would tell.")
    return "\n".join(lines)


def _interval(figure: Figure) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return f"not measured ({', '.join(figure.reasons)})"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
