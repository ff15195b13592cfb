"""Two identical variants: set up as a sweep would never allow, measured by its own rounds, judged by its own rules."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from rich.console import Console

from harness.errors import CellError, ConfigError, InputError
from harness.plan import spec_identity
from harness.results.model import PartRows, RunData, VariantRun
from harness.run import aa
from harness.run.pool import WorkerHandle

from .conftest import Project

SPEED = "matrix: {weights: [f16, q8_0]}\nsuites: {speed: {prompt_tokens: [500], output_tokens: 50, rounds: 3}}"


@pytest.fixture
def prepared(project: Project, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("harness.run.timed._disturbance", lambda payload: 0.0)
    with closing((made := aa.twins(project.options("", SPEED).config_path, 2, lambda what: None)).energy):
        yield made


def test_twins_differ_in_name_and_identity_alone(prepared: Any) -> None:
    a, b = prepared.variants
    assert (a.name, a.reference, b.name, b.reference) == ("a", True, "b", False)
    assert a.settings == b.settings and a.settings.weights == "f16"
    first, second = prepared.specs["a"], prepared.specs["b"]
    assert (first.extra, second.extra) == ({"twin": "a"}, {"twin": "b"})
    assert spec_identity(first) != spec_identity(second)
    assert len({cell.id for cell in prepared.cells}) == len(prepared.cells) == 2
    plan = prepared.suites.speed
    assert (plan.prompt_tokens, plan.output_tokens, plan.rounds, plan.most_rounds) == ((16, 32), aa.TOKENS, 2, 2)


def test_each_twin_has_a_worker_and_every_turn(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_worker: dict[int, list[int]] = {}
    real = WorkerHandle.call

    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        if method == "trial":
            by_worker.setdefault(self.pid, []).append(len(named["prompt"]))
        return real(self, method, *arguments, **named)

    monkeypatch.setattr(WorkerHandle, "call", call)
    found = aa.once(prepared, 3)
    assert list(by_worker.values()) == [[16, 16, 32, 32], [16, 16, 32, 32]]
    assert (found.trials, found.repeats, found.again, found.ratio.n) == (8, 0, 0, 2)
    assert found.smallest_difference >= 0.03 and found.seconds > 0
    assert "small_n" in found.ratio.reasons
    json.dumps(aa.summary([found]), allow_nan=False)


def test_a_failing_engine_ends_it(prepared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def call(self: WorkerHandle, method: str, *arguments: Any, **named: Any) -> Any:
        raise CellError("out of order")

    monkeypatch.setattr(WorkerHandle, "call", call)
    with pytest.raises(CellError, match=r"a: .*out of order"):
        aa.measured(prepared, tmp_path, Console(quiet=True))


def test_a_configuration_without_speed_is_refused(project: Project) -> None:
    path = project.options("", "matrix: {weights: [f16]}\nsuites: {fidelity: {}}").config_path
    with pytest.raises(InputError, match="leaves out speed"):
        aa.twins(path, 2, lambda what: None)
    with pytest.raises(ConfigError):
        aa.twins(project.folder / "none.yaml", 2, lambda what: None)


def rows(gaps: list[float], codes: tuple[str, ...] = (), attempt: int = 1) -> list[dict[str, Any]]:
    """Two trials a round of 11 tokens, the first after 0.1 s, then one each ``gap`` seconds."""
    made = []
    for block, gap in enumerate(gaps):
        events = [[int(1e8 + i * gap * 1e9), 1, 2, "content", 2] for i in range(11)]
        record = {
            "sent_ns": 0, "events": events, "prompt_tokens": 32, "output_tokens": 11, "token_source": "engine",
            "finish_reason": "length", "asked_tokens": 11, "codes": list(codes), "attempt": attempt,
        }  # fmt: skip
        made += [{"block": block, "position": 0, "prompt_tokens": 32, "record": record, "attempt": attempt}] * 2
    return made


def judged(first: list[dict[str, Any]], second: list[dict[str, Any]], dropped: frozenset[int] = frozenset()) -> Any:
    def twin(name: str, payloads: list[dict[str, Any]]) -> VariantRun:
        parts = {("speed", "trials"): PartRows(tuple(payloads), "done", None, False)}
        return VariantRun(name, name == "a", name, {}, {}, parts, dropped)

    return aa.outcome(RunData({}, (twin("a", first), twin("b", second))), 1.0)


DRIFTING = [0.01 * (1 + 0.2 * block) for block in range(10)]


@pytest.mark.parametrize(("bias", "tied"), [(1.0, True), (1.025, True), (1.05, False), (0.8, False)])
def test_a_bias_between_twins_is_seen_and_the_tolerance_is_the_catalogues(bias: float, tied: bool) -> None:
    wobble = [1.002, 0.998] * 5
    found = judged(rows(DRIFTING), rows([gap * bias * w for gap, w in zip(DRIFTING, wobble, strict=True)]))
    assert found.tied is tied
    assert found.ratio.value == pytest.approx(1 / bias, rel=1e-3)
    assert found.ttft_ratio.value == pytest.approx(1.0)


def test_a_difference_within_the_noise_is_tied() -> None:
    noisy = [
        gap * factor for gap, factor in zip(DRIFTING, [1.3, 0.9, 1.2, 0.8, 1.1, 0.95, 1.4, 0.9, 1.0, 1.05], strict=True)
    ]
    found = judged(rows(DRIFTING), rows(noisy))
    assert found.tied and found.ratio.value < 0.96
    assert found.smallest_difference > 0.1


def test_nothing_to_compare_is_no_verdict() -> None:
    with pytest.raises(CellError, match="cannot be compared in any round: undefined, nonfinite"):
        judged(rows([0.01] * 3), rows([0.01] * 3, ("nonfinite",)))


def test_counts_of_disturbed_repeated_and_replaced() -> None:
    quiet, busy = rows([0.01] * 3), rows([0.01] * 3, ("contended",), attempt=3)
    found = judged(quiet, busy, frozenset({1}))
    assert (found.trials, found.contended, found.repeats, found.again) == (8, 4, 8, 1)
    assert "contended" in found.ratio.reasons


def test_summary_and_its_words() -> None:
    same, other = judged(rows(DRIFTING), rows(DRIFTING)), judged(rows(DRIFTING), rows([g * 1.2 for g in DRIFTING]))
    good = aa.summary([same] * 10)
    assert good["tied"]["value"] == 1.0 and good["tied"]["low"] == pytest.approx(0.7225, abs=1e-4)
    assert (good["lowest_ratio"], good["highest_ratio"], good["smallest_difference"]) == (1.0, 1.0, 0.03)
    words = aa.sentence(good)
    assert words.startswith("Two identical variants under different names: tied in 10 of 10 runs (95% interval")
    assert "72% to 100%" in words and "between 1.000 and 1.000" in words and "do not trust" not in words
    assert "chance" in aa.sentence(aa.summary([same] * 9 + [other]))
    bad = aa.summary([same] * 5 + [other] * 5)
    assert "do not trust" in aa.sentence(bad) and bad["lowest_ratio"] == pytest.approx(1 / 1.2)
