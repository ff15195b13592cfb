"""The command line: exit codes, what goes to stdout and what to stderr, and help that teaches."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from harness import __version__
from harness.cli import INTERRUPTED, app, places
from harness.config import expand
from harness.errors import CellError, InputError
from harness.load import load

ROOT = Path(__file__).parent.parent
VERBS = ("init", "plan", "sweep", "report", "choose", "doctor", "export")
STARTER = str(ROOT / "variants.yaml")


def run(*args: str) -> Any:
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@dataclass
class Calls:
    """A stand-in for the sweep: records what it was asked, and ends as it is told."""

    options: list[Any] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    error: BaseException | None = None


@pytest.fixture
def sweeps(monkeypatch) -> Calls:
    calls = Calls()
    module = ModuleType("harness.run.sweep")

    @dataclass(frozen=True)
    class Options:
        config_path: Path
        preset: str
        variants: tuple[str, ...]
        suites: tuple[str, ...]
        out: Path | None
        resume: bool
        fresh: bool
        json: bool
        data: Path | None
        reports_dir: Path

    @dataclass(frozen=True)
    class Outcome:
        folder: str
        failed_cells: list[str]

    def sweep(options: Options) -> Outcome:
        calls.options.append(options)
        if calls.error is not None:
            raise calls.error
        print("progress", file=sys.stderr)
        return Outcome("reports/r1", calls.failed)

    def rebuild_report(folder: Path, out: Path | None) -> Path:
        return out or folder / "report.html"

    module.SweepOptions, module.SweepOutcome, module.sweep = Options, Outcome, sweep  # type: ignore[attr-defined]
    module.rebuild_report = rebuild_report  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "harness.run.sweep", module)
    return calls


# --- help


@pytest.mark.parametrize("verb", [*VERBS, "models list", "models add", "models path"])
def test_help_of_every_verb_shows_an_example_on_a_line_of_its_own(verb):
    done = run(*verb.split(), "--help")
    assert done.exit_code == 0
    example = r"^ +du -sh" if verb == "models path" else rf"^ +harness {verb}\b"
    assert re.search(r"^ +Example", done.stdout, re.M)
    assert re.search(example, done.stdout, re.M)


def test_help_lists_the_verbs_in_the_order_of_use():
    listed = re.findall(r"^  (\w+)  ", run("--help").stdout.split("Commands:")[1], re.M)
    assert listed == ["init", "plan", "sweep", "report", "choose", "doctor", "models", "export"]


def test_version():
    assert run("--version").stdout.strip() == __version__


@pytest.mark.parametrize("args", [(), ("swep",), ("sweep", "--presett", "quick"), ("report",), ("models",)])
def test_wrong_usage_ends_in_2(args):
    assert run(*args).exit_code == 2


# --- sweep


def test_sweep_passes_its_options_on_and_ends_with_the_folder(sweeps):
    done = run(
        *("sweep", "v.yaml", "--preset", "smoke", "--variant", "a", "--variant", "b", "--suite", "speed"),
        *("--out", "o", "--fresh", "--data", "d"),
    )
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["reports/r1"]
    assert "progress" in done.stderr
    (options,) = sweeps.options
    assert (options.config_path, options.preset) == (Path("v.yaml"), "smoke")
    assert (options.variants, options.suites) == (("a", "b"), ("speed",))
    assert (options.out, options.resume, options.fresh, options.data) == (Path("o"), False, True, Path("d"))
    assert options.reports_dir == Path("reports")


def test_sweep_defaults(sweeps):
    assert run("sweep").exit_code == 0
    (options,) = sweeps.options
    assert (options.config_path, options.preset) == (Path("variants.yaml"), "quick")
    assert (options.variants, options.suites, options.out, options.data) == ((), (), None, None)
    assert (options.resume, options.fresh, options.json) == (False, False, False)


def test_failed_cells_are_named_and_end_in_1(sweeps):
    sweeps.failed = ["q2_k mmlu: the worker died"]
    done = run("sweep")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "reports/r1"
    assert "failed: q2_k mmlu: the worker died" in done.stderr


def test_sweep_as_json_is_one_object_on_stdout(sweeps):
    sweeps.failed = ["x"]
    done = run("sweep", "--json")
    assert json.loads(done.stdout) == {"folder": "reports/r1", "failed_cells": ["x"]}
    assert done.exit_code == 1


def test_resume_and_fresh_exclude_each_other(sweeps):
    done = run("sweep", "--resume", "--fresh")
    assert (done.exit_code, sweeps.options) == (2, [])
    assert "--resume and --fresh exclude each other" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("v.yaml:3: a\nv.yaml:4: b"), 2, "v.yaml:3: a\nv.yaml:4: b\n"),
        (CellError("no memory"), 1, "no memory\n"),
        (KeyboardInterrupt(), 130, f"\n{INTERRUPTED}\n"),
    ],
)
def test_errors_for_people_have_no_traceback(sweeps, error, code, said):
    sweeps.error = error
    done = run("sweep")
    assert (done.exit_code, done.stderr, done.stdout) == (code, said, "")


def test_a_bug_keeps_its_traceback(sweeps):
    sweeps.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        run("sweep")


# --- plan and init


def test_plan_counts_the_cells_and_adds_up():
    done = run("plan", STARTER, "--json")
    plan = json.loads(done.stdout)
    assert done.exit_code == 0
    assert len(plan["variants"]) == 9
    assert len(plan["cells"]) == plan["total"]["cells"] == 9 * 8 + 4 + 5  # 4 audits of speculation, 5 by depth
    assert plan["total"]["seconds"] == pytest.approx(sum(cell["seconds"] for cell in plan["cells"]), abs=1)
    shared = [cell for cell in plan["cells"] if cell["shared_with"]]
    assert len(shared) == 4 * 4
    assert all(cell["seconds"] == 0 for cell in shared)


def test_plan_as_a_table_names_every_variant_and_says_it_estimates():
    done = run("plan", STARTER, "--preset", "smoke", "--suite", "speed")
    assert done.exit_code == 0
    for name in ("f16 (ref)", "q4_k_m", "q8_0+draft", "estimate", "restored"):
        assert name in done.stdout


def test_plan_of_a_model_of_unknown_size_says_so(write_config):
    text = "version: 1\nmodel: hf:owner/repo\nreference: f16\nmatrix: {weights: [f16]}\n"
    plan = json.loads(run("plan", str(write_config(text)), "--json").stdout)
    assert plan["total"]["seconds"] is None
    assert plan["variants"][0]["memory_bytes"] is None
    assert "?" in run("plan", str(write_config(text))).stdout


def tiny_gguf(file: Path, facts: dict[str, str | int]) -> None:
    """A GGUF file of one F32 tensor of 4 x 2 and the given facts."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(facts))
    for key, value in facts.items():
        out += text(key)
        out += struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value)
    out += text("token_embd.weight") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0)
    out += b"\0" * (-len(out) % 32) + b"\0" * 32
    file.write_bytes(out)


def test_plan_reads_the_size_of_a_local_model_from_its_header(write_config, tmp_path):
    shape = {"block_count": 3, "attention.head_count": 4, "attention.head_count_kv": 2, "embedding_length": 32}
    tiny_gguf(tmp_path / "m.gguf", {"general.architecture": "llama", **{f"llama.{k}": v for k, v in shape.items()}})
    text = "version: 1\nmodel: m.gguf\nreference: f16\nmatrix: {weights: [f16]}\n"
    (row,) = json.loads(run("plan", str(write_config(text)), "--json").stdout)["variants"]
    assert row["file_bytes"] == 8 * 2
    # 3 layers x 2 key-value heads x 8 values x (K and V) x 2 bytes = 192 bytes a token, for 4096 tokens; to score 2048
    # tokens and a probe 3 x 1024 and a batch of 512 more. Attention: 4 heads and a mask, for 512 tokens at once.
    cells = 4096 + 3 * 1024 + 512
    assert row["memory_bytes"] == 16 + 192 * cells + 4 * 512 * 5 * cells + 100_000_000


def test_plan_refuses_a_file_that_is_no_model(write_config, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"not a model")
    done = run("plan", str(write_config("version: 1\nmodel: m.gguf\nreference: f16\nmatrix: {weights: [f16]}\n")))
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("plan",), "variants.yaml: no such file"),
        (("plan", STARTER, "--preset", "fast"), "--preset: unknown 'fast'"),
        (("plan", STARTER, "--variant", "q4"), "--variant: unknown 'q4'"),
        (("plan", STARTER, "--suite", "sped"), "--suite: unknown 'sped'"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_ends_in_2(args, said):
    done = run(*args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_init_writes_a_file_that_loads_and_never_overwrites(tmp_path):
    done = run("init", "new/variants.yaml")
    assert done.stdout.strip() == "new/variants.yaml"
    written = tmp_path / "new" / "variants.yaml"
    assert len(expand(load(written))) == 9
    schema = written.read_text().splitlines()[0].split("$schema=")[1]
    assert schema == places.variants_schema().as_uri()
    written.write_text("mine")
    again = run("init", "new")
    assert again.exit_code == 2
    assert "already there and kept" in again.stderr
    assert written.read_text() == "mine"


# --- runs


def figure(value: float | None, spread: float, unit: str, better: str, *reasons: str) -> dict[str, Any]:
    low, high = (None, None) if value is None else (value - spread, value + spread)
    return {"value": value, "low": low, "high": high, "n": 30, "unit": unit, "better": better, "reasons": list(reasons)}


def make_run(folder: Path, **metrics: dict[str, Any]) -> Path:
    """A run with two variants: q4_0 is faster and agrees less."""
    folder.mkdir(parents=True)
    rows = {"f16": (94.0, 1.0, 2e8), "q4_0": (170.0, 0.9, 1e8)}
    variants = [
        {
            "name": name, "reference": name == "f16", "id": name, "status": "ok", "failures": [],
            "settings": {"weights": name, "speculate": "none"}, "deploy": f"llama-server --model {name}.gguf",
            "metrics": {
                "decode_tps": figure(speed, 2.0, "tokens/s", "higher"),
                "top1_agreement": figure(agreement, 0.0 if agreement == 1 else 0.01, "ratio", "higher"),
                "model_bytes": figure(size, 0.0, "bytes", "lower"),
            },
        }
        for name, (speed, agreement, size) in rows.items()
    ]  # fmt: skip
    (folder / "results.json").write_text(json.dumps({"suites": {}, "variants": variants}))
    return folder


def test_choose_names_the_variant_the_losers_and_the_command(tmp_path):
    make_run(tmp_path / "reports" / "r1")
    done = run("choose", "latest", "--maximize", "decode_tps")
    assert done.exit_code == 0
    assert "choice: q4_0" in done.stdout
    assert re.search(r"^f16 +qualifies, but", done.stdout, re.M)
    assert done.stdout.splitlines()[-1] == "  llama-server --model q4_0.gguf"
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_choose_warns_of_a_variant_whose_speculation_changed_the_text(tmp_path):
    made = make_run(tmp_path / "r") / "results.json"
    assert "FAULT" not in run("choose", "r").stdout
    results = json.loads(made.read_text())
    results["variants"][1]["metrics"]["audit_identical"] = figure(0.5, 0.1, "ratio", "higher", "lossy_speculation")
    made.write_text(json.dumps(results))
    text = " ".join(run("choose", "r").stdout.split())
    assert "FAULT: q4_0: speculation changed the text by more than rounding can; do not deploy." in text


def test_choose_as_json(tmp_path):
    make_run(tmp_path / "r")
    done = run("choose", "r", "--minimize", "model_bytes", "--require", "top1_agreement>=95%", "--json")
    answer = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (answer["choice"], answer["deploy"]) == ("f16", "llama-server --model f16.gguf")
    assert [loser["name"] for loser in answer["losers"]] == ["q4_0"]


def test_choose_without_a_wish_takes_the_default_one(tmp_path):
    make_run(tmp_path / "r")
    answer = json.loads(run("choose", "r", "--json").stdout)
    assert (answer["objective"], answer["quality_key"], answer["choice"]) == ("decode_tps", "top1_agreement", "f16")


@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_choose_ends_in_3_where_none_qualifies(tmp_path, json_flag):
    make_run(tmp_path / "r")
    done = run("choose", "r", "--maximize", "decode_tps", "--require", "decode_tps>=1000", *json_flag)
    assert done.exit_code == 3
    assert "f16" in done.stdout
    assert "q4_0" in done.stdout
    if json_flag:
        assert (json.loads(done.stdout)["choice"], json.loads(done.stdout)["deploy"]) == (None, None)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--maximize", "decode_tps", "--minimize", "ttft_s"), "expected one of them"),
        (("--require", "ttft_s<=1s"), "expected --minimize KEY or --maximize KEY"),
        (("--maximize", "decode_tsp"), "Did you mean 'decode_tps'?"),
        (("--maximize", "decode_tps", "--require", "ttft_s"), "--require"),
        (("--maximize", "decode_tps", "--max-loss", "mmlu_acc"), "--max-loss"),
    ],
)
def test_a_wish_that_cannot_be_read_ends_in_2(tmp_path, args, said):
    make_run(tmp_path / "r")
    done = run("choose", "r", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_results_that_are_missing_or_not_strict_json_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.sqlite").touch()
    assert "has not finished" in run("choose", "a", "--maximize", "decode_tps").stderr
    for name, text in (("b", '{"variants": [NaN]}'), ("c", "{"), ("d", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(text)
        done = run("choose", name, "--maximize", "decode_tps")
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1


def test_a_run_is_a_folder_a_run_id_a_file_of_it_or_latest(tmp_path):
    old = make_run(tmp_path / "reports" / "old")
    new = make_run(tmp_path / "reports" / "new")
    other = make_run(tmp_path / "elsewhere")
    os.utime(old / "results.json", (1, 1))
    reports = tmp_path / "reports"
    assert places.run_folder("latest", reports) == new
    assert places.run_folder("old", reports) == old
    assert places.run_folder(str(other), reports) == other
    assert places.run_folder(str(other / "results.json"), reports) == other
    with pytest.raises(InputError, match=r"olds: no such run; .*known: latest, new, old\. Did you mean 'old'\?"):
        places.run_folder("olds", reports)


def test_no_run_yet_says_what_to_do():
    for name in ("latest", "r1"):
        done = run("report", name)
        assert done.exit_code == 2
        assert "harness sweep" in done.stderr


def test_report_prints_the_file_it_wrote(tmp_path, sweeps):
    make_run(tmp_path / "reports" / "r1")
    assert run("report", "r1").stdout.strip() == str(Path("reports/r1/report.html"))
    assert run("report", "r1", "--out", "page.html").stdout.strip() == "page.html"


# --- export


@pytest.fixture
def stored(tmp_path) -> Path:
    from harness.record import ItemRow
    from harness.store import CellRow, Store

    folder = tmp_path / "reports" / "r1"
    store = Store.create(folder / "run.sqlite")
    store.add_cell(CellRow("c1", "mmlu", "docs", "f16"), ["f16", "f16+lookup"])
    store.add_item(ItemRow("c1", "doc-1", "doc", {"gold": 1, "subject": 'zähe\u2028Zeile, "quoted"'}))
    store.close()
    return folder


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_export_writes_one_row_per_item_and_variant(stored, format):
    import pandas as pd

    done = run("export", "r1", "--format", format)
    assert done.exit_code == 0
    target = Path(done.stdout.strip())
    assert target == Path("reports/r1") / f"items.{format}"
    readers = {"csv": pd.read_csv, "parquet": pd.read_parquet, "jsonl": lambda file: pd.read_json(file, lines=True)}
    frame = readers[format](target)
    assert list(frame["variant"]) == ["f16", "f16+lookup"]
    payload = frame["payload"][0]
    payload = json.loads(payload) if isinstance(payload, str) else payload
    assert payload == {"gold": 1, "subject": 'zähe\u2028Zeile, "quoted"'}


def test_export_refuses_other_formats_and_places(stored, tmp_path):
    assert "Did you mean 'csv'?" in run("export", "r1", "--format", "csvv").stderr
    assert run("export", "r1", "--format", "csv", "--out", str(tmp_path)).exit_code == 2
    done = run("export", "r1", "--format", "csv", "--out", str(tmp_path / "none" / "x.csv"))
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1


# --- models and doctor


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_models_lists_what_is_in_the_cache(cache):
    empty = run("models", "list")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "harness models add demo" in empty.stderr
    made = cache / "models" / "quantised" / "m-q8_0.gguf"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"x" * 2_000_000)
    assert run("models", "list").stdout == f"m-q8_0  quantised  2 MB\n  {made}\n"
    (row,) = json.loads(run("models", "list", "--json").stdout)
    assert (row["name"], row["kind"], row["bytes"]) == ("m-q8_0", "quantised", 2_000_000)


def test_models_path_is_the_cache_or_a_file(cache, tmp_path):
    assert run("models", "path").stdout.strip() == str(cache)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert run("models", "path", "m.gguf").stdout.strip() == "m.gguf"
    missing = run("models", "add", "no.gguf")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert len(missing.stderr.splitlines()) == 1


def test_doctor_aa_says_in_words_or_json_what_came_out(monkeypatch, tmp_path):
    from harness.run import aa

    asked = []

    def repeated(config, runs, say):
        asked.append((config, runs))
        say("run 1/1: tied")
        return []

    monkeypatch.setattr(aa, "repeated", repeated)
    monkeypatch.setattr(aa, "summary", lambda found: {"tied": {"value": 1.0}})
    monkeypatch.setattr(aa, "sentence", lambda said: "tied in 1 of 1 runs")
    done = run("doctor", "--aa")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "tied in 1 of 1 runs\n", "run 1/1: tied\n")
    file = tmp_path / "v.yaml"
    shown = run("doctor", "--aa", "--runs", "3", "--config", str(file), "--json").stdout
    assert json.loads(shown) == {"tied": {"value": 1.0}}
    assert asked == [(None, aa.RUNS), (file, 3)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runs", "3"], "--runs: goes with --aa only"),
        (["--config", "v.yaml"], "--config: goes with --aa only"),
        (["--aa", "--runs", "0"], "--runs 0: expected 1 to 1000"),
        (["--aa", "--config", "none.yaml"], "none.yaml: no such file"),
    ],
)
def test_doctor_refuses_what_does_not_go_together(words, said):
    done = run("doctor", *words)
    assert done.exit_code == 2 and done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_doctor_shows_every_check_with_its_remedy(monkeypatch):
    from harness import doctor

    checks = [
        doctor.Check("cores", "ok", "2 of 2 usable"),
        doctor.Check("energy", "missing", "no counter", "energy [rapl] is an estimate", "use real hardware"),
    ]
    monkeypatch.setattr(doctor, "diagnose", lambda: checks)
    shown = run("doctor").stdout
    for text in ("cores", "ok", "2 of 2 usable", "missing", "energy [rapl] is an estimate", "-> use real hardware"):
        assert text in shown
    assert json.loads(run("doctor", "--json").stdout) == doctor.as_dicts(checks)


# --- what hostile and clumsy users give


@pytest.mark.parametrize(
    "args",
    [("sweep", "--out", ""), ("report", "r", "--out", ""), ("export", "r", "--format", "csv", "--out", "")],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_folder(tmp_path, sweeps, args):
    make_run(tmp_path / "r")
    done = run(*args)
    assert (done.exit_code, done.stdout, sweeps.options) == (2, "", [])
    assert "empty" in done.stderr


@pytest.mark.parametrize("args", [("choose", ""), ("choose", "r", "--maximize", ""), ("choose", "r", "--minimize", "")])
def test_an_empty_name_is_no_name(tmp_path, args):
    make_run(tmp_path / "r")
    done = run(*args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["run.sqlite", "results.json"])
@pytest.mark.parametrize("verb", [("report", "r1"), ("export", "r1", "--format", "csv")], ids=" ".join)
def test_no_output_replaces_a_runs_data(stored, sweeps, verb, name, tmp_path):
    (tmp_path / "link").symlink_to(stored / name)
    before = (stored / "run.sqlite").read_bytes()
    for target in (str(stored / name), "link"):
        done = run(*verb, "--out", target)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "would replace a run's data" in done.stderr
    assert (stored / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    "args",
    [
        ("report", "x" * 5000),
        ("choose", "x" * 5000),
        ("export", "r1", "--format", "csv", "--out", "x" * 300),
        ("models", "path", "x" * 5000),
        ("init", "x" * 300),
    ],
    ids=lambda args: args[0],
)
def test_a_name_that_is_too_long_is_one_line(stored, args):
    done = run(*args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "too long" in done.stderr


def test_messages_hold_no_terminal_commands():
    assert "\x1b" not in run("choose", "\x1b[31mred").stderr


@pytest.mark.parametrize(
    "results",
    [
        '{"variants": [1]}',
        '{"variants": [{"name": "a"}]}',
        '{"variants": [], "suites": []}',
        '{"variants": [{"name": "a", "reference": true, "status": "ok", "settings": {}, "metrics": {"x": 1}}]}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_results_of_another_shape_are_refused(tmp_path, results):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "results.json").write_text(results)
    done = run("choose", "r")
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "harness report r" in done.stderr


def test_a_share_that_was_meant_as_a_percentage_is_refused(tmp_path):
    make_run(tmp_path / "r")
    for option in (("--max-loss", "top1_agreement=5"), ("--require", "top1_agreement>=95")):
        done = run("choose", "r", "--maximize", "decode_tps", *option)
        assert done.exit_code == 2
        assert "% for a percentage" in done.stderr


@pytest.mark.parametrize("length", ["x", "-5"])
def test_plan_of_a_model_with_a_strange_header_still_answers(write_config, tmp_path, length):
    shape = {"block_count": 3, "attention.head_count": 4, "embedding_length": 32, "attention.key_length": length}
    tiny_gguf(tmp_path / "m.gguf", {"general.architecture": "llama", **{f"llama.{k}": v for k, v in shape.items()}})
    text = "version: 1\nmodel: m.gguf\nreference: f16\nmatrix: {weights: [f16]}\n"
    (row,) = json.loads(run("plan", str(write_config(text)), "--json").stdout)["variants"]
    assert row["memory_bytes"] > 0


def test_a_narrow_terminal_cuts_no_figure(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    shown = run("plan", STARTER, "--preset", "smoke").stdout
    assert "…" not in shown
    assert re.search(r"^q8_0\+draft .* s +\d+ MB +\d+ MB$", shown, re.M)


# --- the process


def process(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "harness", *args], capture_output=True, text=True, check=False, cwd=cwd, env=env
    )


def test_the_process_ends_with_the_exit_code_and_without_a_traceback(tmp_path):
    done = process("plan", "none.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("none.yaml: no such file")
    assert process("--help", cwd=tmp_path).returncode == 0
    assert process("plan", STARTER, "--bogus", cwd=tmp_path).returncode == 2


def test_help_imports_no_heavy_library(tmp_path):
    code = (
        "import sys, runpy\nsys.argv = ['harness', '--help']\n"
        "try:\n    runpy.run_module('harness', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    loaded = done.stdout.split("LOADED")[1].split()
    assert not {"numpy", "pandas", "pydantic", "ruamel", "rich", "plotly", "lm_eval", "torch", "llama_cpp"} & set(
        loaded
    )


def test_a_locale_without_our_signs_and_a_reader_that_leaves_end_no_process_in_a_traceback(tmp_path):
    make_run(tmp_path / "r")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "harness", "choose", "r"]
    done = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"top-1 agreement ? 95%" in done.stdout
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, cwd=tmp_path, env=env)
    os.close(write)
    assert gone.returncode in (0, 1)
    assert b"Traceback" not in gone.stderr
