"""What the benchmarks of noise make of rows worked out by hand, and that a burner is ended in any case."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import aa, burner, contention, overhead
from harness.record import Figure
from harness.run.aa import Outcome

S = 1_000_000_000


def row(start_s, end_s, codes=(), **more):
    record = {"sent_ns": int(start_s * S), "events": [[int(end_s * S), 1, 1]], "codes": list(codes)}
    return {"record": record, "contention": {"wall_s": end_s - start_s}, "waited_s": 0.0, **more}


def test_a_trial_is_beside_the_burner_from_half_its_time_on_and_apart_only_without_any():
    rows = [
        row(0, 1, ["contended"]),  # before: a false alarm
        row(1, 2),
        row(9.2, 10.2),  # a fifth of it: neither
        row(9.5, 10.5, ["contended"]),
        row(11, 12),  # missed
    ]
    assert contention.marks(rows, [(10 * S, 20 * S)]) == ([True, False], [True, False])
    assert contention.marks(rows[:2], []) == ([], [True, False])


def swept(q8, q4, *, beside=(), apart=(), seconds=10.0, cost=0.2):
    def figure(value):
        return {"value": value, "low": value / 1.02, "high": value * 1.02, "n": 15}

    ratios = {"f16": figure(1.0), "q8_0": figure(q8), "q4_0": figure(q4)}
    return contention.Swept(ratios, beside, apart, {"share_of_sweep": cost}, 24.0, seconds)


def test_figures_of_quiet_and_disturbed_sweeps():
    quiet = [swept(1.30, 2.0, apart=[False] * 9 + [True]), swept(1.35, 2.0, apart=[False] * 10)]
    disturbed = [swept(1.30, 1.9, beside=[True, True, False], apart=[False]), swept(1.35, 1.9, beside=[True])]
    found = contention.figures(quiet, disturbed)
    assert found["affected trials found"]["value"] == 0.75 and found["affected trials found"]["n"] == 4
    assert found["false alarms"]["value"] == 0.05 and found["false alarms before the burner"]["value"] == 0.0
    assert found["q8_0: disturbed over quiet"]["value"] == pytest.approx(1.0)
    assert found["q4_0: disturbed over quiet"]["value"] == pytest.approx(0.95)
    # ln(1.35 / 1.30) = 0.0377 is more than sqrt(2) ln 1.02 = 0.0280; the other variant's two ratios are the same
    assert found["quiet sweeps that agree within their intervals"]["value"] == 0.5
    goals, limits = contention.bounds()
    assert set(goals) | set(limits) <= set(found)
    assert goals["q4_0: disturbed over quiet"] == 0.97 and limits["q4_0: disturbed over quiet"] == 1.03


def test_a_ratio_that_was_not_measured_is_no_figure_and_fails_its_goal(capsys):
    lost = swept(1.3, 2.0)
    lost.ratios["q4_0"]["value"] = lost.ratios["q4_0"]["low"] = None
    found = contention.figures([swept(1.3, 2.0)], [lost])
    assert found["q4_0: disturbed over quiet"] is None and found["affected trials found"] is None
    assert contention.conclude("contention", "", found, *contention.bounds()) == 1
    assert capsys.readouterr().out


def test_where_the_time_of_a_sweep_went():
    trials = [row(0, 1), row(1, 3, waited_s=0.5), row(6, 7)]
    loads = [{"load_s": 2.0, "warm": {"seconds": [0.25, 0.25], "flat": True}}, {"load_s": 1.0, "warm": None}]
    sentinels = [{"t_ns": 0}, {"t_ns": 10 * S}]
    found = overhead.shares(trials, trials[:2], loads, sentinels, spent_s=6.0, cells_s=20.0)
    # 4 s in trials of which the last, 1 s, does not count; 6 s spent on attempts and waits; 10 s from first to last
    assert found["trials_s"] == 3.0 and found["again_s"] == 1.0 and found["waits_s"] == 0.5
    assert found["repeats_s"] == 1.5 and found["warm_ups_s"] == 0.5 and found["sentinels_s"] == 4.0
    assert found["sweep_s"] == 20 + 3 + 0.5 + 4
    assert found["share_of_trials"] == pytest.approx(7.5 / 10.5)
    assert found["share_of_sweep"] == pytest.approx(7.5 / 27.5)
    assert overhead.shares([], [], [], [], 0.0, 0.0)["share_of_sweep"] == 0.0


def outcome(ratio, tied, reasons=()):
    figure = Figure(ratio, ratio / 1.01, ratio * 1.01, 10, reasons)
    return Outcome(tied, figure, figure, 0.01, 40, 4, 2, 1, 9.0)


def test_figures_of_identical_variants():
    found = dict(aa.figures("noisy", [outcome(1.1, False), outcome(1.0, True, ("contended",)), outcome(0.99, True)]))
    assert found["tied, noisy"]["value"] == pytest.approx(2 / 3) and found["tied, noisy"]["n"] == 3
    assert found["median |ln ratio|, noisy"] == pytest.approx(-math.log(0.99))
    assert found["largest |ln ratio|, noisy"] == pytest.approx(math.log(1.1))
    assert found["runs whose ratio would rank, noisy"] == pytest.approx(2 / 3)
    assert found["contended trials, noisy"] == 0.1 and found["repeats over trials, noisy"] == 0.05
    assert found["rounds run again, noisy"] == 0.1 and found["seconds a run, noisy"] == 9.0


def test_a_round_that_has_begun_is_seen_in_the_file_of_a_running_sweep(tmp_path):
    from harness.record import ItemRow
    from harness.store import Store

    path = tmp_path / "run.sqlite"
    assert not contention.begun(path, 2)
    path.touch()
    assert not contention.begun(path, 2)
    path.unlink()
    store = Store.create(path)
    for number in range(3):
        store.add_item(ItemRow("cell", f"{number:05d}-before", "sentinel", {}))
    assert contention.begun(path, 2) and not contention.begun(path, 3)
    store.close()


def test_a_burner_burns_and_is_ended():
    with burner.Burner(bursts=False) as neighbour:
        process = neighbour._process
        assert process is not None and process.poll() is None
    assert process.returncode == -9
    ((first, last),) = neighbour.spans
    assert first < last <= time.perf_counter_ns()
    neighbour.stop()
    assert len(neighbour.spans) == 1


def test_a_burner_ends_with_whoever_started_it():
    done = subprocess.run([sys.executable, burner.__file__, "always", str(os.getpid() + 1)], timeout=60, check=False)
    assert done.returncode == 0  # its parent is not the one it was told of


def test_the_configuration_of_the_sweep_is_one(tmp_path):
    from harness.load import load

    path = Path(tmp_path) / "variants.yaml"
    path.write_text(contention.CONFIG.format(weights=", ".join(contention.WEIGHTS), threads=", threads: 1", rounds=4))
    config = load(path)
    assert config.suites.speed is not None and config.suites.speed.rounds == 4 and config.suites.mmlu is None
    assert config.reference == contention.WEIGHTS[0]
