"""The whole program on the real engine and the real default model, through the command line, at a small size."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import schemas
from harness.metrics.sentinel import AGAIN
from harness.run.collect import collect
from harness.store import Store

pytestmark = pytest.mark.engine

CONFIG = """
version: 1
model: demo
reference: f16
matrix:
  weights: [f16, q4_0]
  speculate: [none, lookup]
  exclude: [{weights: q4_0, speculate: lookup}]
settings: {threads: 1, ctx: 1024}
speculate:
  lookup: {kind: prompt_lookup, ngram: 3, tokens: 6}
suites:
  mmlu: {form: continuation, per_subject: 1}
  long_context: {depths: [256], texts: 1, probes: 6, continuation_tokens: 24, continuation_from: 256}
  code_syntax: {limit: 8, max_tokens: 24}
  speed: {prompt_tokens: [24, 48, 96], output_tokens: 34, rounds: 3}
  fidelity: {tokens: 128, greedy_prompts: 2, greedy_tokens: 16}
"""


def harness(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "HARNESS_DATA"}
    environment["HF_HUB_OFFLINE"] = "1"
    command = [sys.executable, "-m", "harness", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sweep")
    (made / "variants.yaml").write_text(CONFIG, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def killed(folder: Path) -> dict[str, list[str]]:
    """A sweep killed in the middle, with what it had stored by then: item keys by cell."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("HARNESS_DATA", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "sweep"],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 600
    while "trials" not in _items(folder):
        assert process.poll() is None, "the sweep ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return _items(folder)


def _items(folder: Path) -> dict[str, list[str]]:
    """Stored payloads by part of a suite."""
    found: dict[str, list[str]] = {}
    for path in folder.glob("reports/*/run.sqlite"):
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
                for part, key, payload in db.execute("SELECT part, key, payload FROM items JOIN cells USING (cell_id)"):
                    found.setdefault(part, []).append(f"{key} {payload}")
        except sqlite3.OperationalError:  # the file is just being made
            return {}
    return found


@pytest.fixture(scope="module")
def run(folder: Path, killed: dict[str, list[str]]) -> Iterator[Path]:
    """The same command again: it goes on and ends."""
    done = harness("sweep", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "resuming" in done.stderr
    yield folder / done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def results(run: Path) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    loaded: dict[str, Any] = json.loads((run / "results.json").read_text(encoding="utf-8"), parse_constant=refuse)
    return loaded


def test_the_run_folder_is_complete_and_clean(run: Path) -> None:
    names = {path.name for path in run.iterdir()}
    assert {"run.sqlite", "results.json", "report.html", "logs"} <= names
    assert not [name for name in names if name.endswith((".part", ".npy"))]


def test_nothing_that_was_stored_before_the_kill_was_done_again(
    killed: dict[str, list[str]], folder: Path, run: Path
) -> None:
    after = _items(folder)
    assert killed["trials"] and killed["docs"] and len(killed["trials"]) < len(after["trials"])
    for part, rows in killed.items():
        assert set(rows) <= set(after[part]), f"{part}: a stored row changed"
    with sqlite3.connect(run / "run.sqlite") as db:
        counts = dict(
            db.execute("SELECT part || ':' || c.variant, count(*) FROM items JOIN cells c USING (cell_id) GROUP BY 1")
        )
        assert db.execute("SELECT count(*) FROM cells WHERE state != 'done'").fetchone() == (0,)
    # The round that was cut off is run anew; of its takes, as of a round over which the machine moved, one counts.
    store = Store.open(run)
    counted = {variant.name: len(variant.trials()) for variant in collect(store).variants}
    store.close()
    assert counted == dict.fromkeys(("f16", "q4_0", "f16+lookup"), 2 * 3)
    assert counts["docs:f16"] == counts["docs:q4_0"] == 57
    assert "docs:f16+lookup" not in counts


def test_results_have_the_published_shape(results: dict[str, Any]) -> None:
    schemas.check_results(results)
    assert results["status"] == "complete"
    assert [variant["name"] for variant in results["variants"]] == ["f16", "q4_0", "f16+lookup"]


def test_figures_are_those_of_this_model(results: dict[str, Any]) -> None:
    f16, q4, lookup = (variant["metrics"] for variant in results["variants"])
    assert f16["model_bytes"]["value"] > 1.5 * q4["model_bytes"]["value"]
    assert f16["mmlu_acc"]["value"] >= 0.38
    assert "sample_not_mmlu" in f16["mmlu_acc"]["reasons"]
    assert f16["top1_agreement"]["value"] == lookup["top1_agreement"]["value"] == 1.0
    assert 0.5 < q4["top1_agreement"]["value"] < 1.0
    assert q4["kl_mean"]["value"] > 0
    assert lookup["accept_rate"]["value"] is not None
    assert f16["accept_rate"]["reasons"] == f16["audit_identical"]["reasons"] == ["no_speculation"]
    assert lookup["audit_identical"]["n"] == 2
    assert lookup["audit_identical"]["conditions"]["verdict"] in ("lossless", "near ties only")
    assert 0 <= lookup["draft_share"]["value"] < 0.1  # looking up costs next to nothing
    assert f16["decode_tps"]["value"] > 0 and f16["ttft_s"]["value"] > 0
    assert lookup["greedy_agree_tokens"]["value"] > 0
    assert f16["energy_j_per_token"]["value"] is not None or f16["energy_j_per_token"]["reasons"]


def test_speculation_changes_no_log_likelihood(results: dict[str, Any]) -> None:
    f16, _, lookup = results["variants"]
    for key in ("mmlu_acc", "ledger_acc", "kl_mean", "top1_agreement"):
        assert "shared_scoring" in lookup["metrics"][key]["reasons"]
        assert lookup["metrics"][key]["value"] == f16["metrics"][key]["value"]


def test_the_page_stands_alone(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<html" in page and "f16+lookup" in page
    assert 'src="http' not in page and "url(http" not in page


def test_a_finished_run_is_not_taken_for_unfinished(run: Path, folder: Path) -> None:
    again = harness("sweep", "--resume", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip().splitlines()[-1].endswith(run.name)


def test_choose_names_a_variant_and_its_command(run: Path, folder: Path) -> None:
    chosen = harness("choose", run, "--minimize", "model_bytes", "--json", cwd=folder)
    assert chosen.returncode == 0, chosen.stderr
    answer = json.loads(chosen.stdout)
    assert "q4_0" in json.dumps(answer)
    none = harness("choose", run, "--require", "model_bytes<=1", "--minimize", "model_bytes", cwd=folder)
    assert none.returncode == 3


def test_report_is_rebuilt_from_the_run_file_alone(run: Path, folder: Path) -> None:
    out = folder / "again.html"
    assert harness("report", run, "--out", out, cwd=folder).returncode == 0
    assert out.read_text(encoding="utf-8") == (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_export_gives_every_row(run: Path, folder: Path, form: str) -> None:
    import pandas as pd

    out = folder / f"rows.{form}"
    done = harness("export", run, "--format", form, "--out", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    frame = {"csv": pd.read_csv, "parquet": pd.read_parquet, "jsonl": lambda path: pd.read_json(path, lines=True)}[
        form
    ](out)
    takes = frame[frame["part"] == "trials"]["key"].astype(str).str[:5].astype(int)
    takes = takes.value_counts()
    # A take that the kill broke off stays in the file beside the one that replaces it.
    rounds = takes.groupby(takes.index % AGAIN).max()
    assert rounds.to_dict() == dict.fromkeys(range(3), 6)


def test_identical_variants_show_no_difference_that_matters(tmp_path: Path) -> None:
    """One short A/A run. A bias between twins must show; noise, which only widens the interval, must not."""
    (tmp_path / "one.yaml").write_text(
        "version: 1\nmodel: demo\nreference: q4_0\nmatrix: {weights: [q4_0]}\n"
        "settings: {threads: 1, ctx: 512}\nsuites: {speed: {}}\n",
        encoding="utf-8",
    )
    done = harness("doctor", "--aa", "--runs", "1", "--config", "one.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    (found,) = said["runs"]
    # Of a round and its repeat one counts: two trials of each of two variants in ten rounds, whatever happened.
    assert said["trials"] == found["trials"] == 40 and found["ratio"]["n"] == 10
    assert said["tied"]["n"] == 1 and said["tied"]["value"] == float(found["tied"])
    assert set(found["ratio"]["reasons"]) <= {"contended", "throttled"}
    for ratio in (found["ratio"], found["ttft_ratio"]):
        assert ratio["low"] < ratio["value"] < ratio["high"]
        assert ratio["low"] < 1.2 and ratio["high"] > 1 / 1.2
    assert said["smallest_difference"] == found["smallest_difference"] > 0
