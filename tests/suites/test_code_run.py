"""Programs for the sandbox: known-good solutions pass, wrong ones do not, and what is said says why."""

from __future__ import annotations

import os

import pytest

from harness import sandbox
from harness.sandbox import Ran
from harness.suites.code_run.problems import LANGUAGES, Problem, load
from harness.suites.code_run.program import execute, judge, outcome_of
from harness.suites.code_run.toolchains import toolchain
from harness.suites.code_syntax import Prompt

works = pytest.mark.skipif(sandbox.refusal() is not None, reason=str(sandbox.refusal()))
data = pytest.mark.skipif("HARNESS_DATA" not in os.environ, reason="HARNESS_DATA is unset")
ADD = Problem(
    "own/python/0",
    "own",
    "own/0",
    Prompt("own/python/0", "python", "add", "def add(a, b):\n", ("\ndef ",)),
    "    return a + b\n",
    "assert add(1, 2) == 3\n",
)


@works
@pytest.mark.parametrize(
    ("output", "finish", "outcome"),
    [
        ("    return a + b\n", "stop", "passed"),
        ("```python\ndef add(a, b):\n    return a + b\n```\n", "stop", "passed"),
        ("    return a - b\n", "stop", "failed"),
        ("    return c\n", "stop", "error"),
        ("    while True:\n        pass\n", "stop", "timeout"),
        ("    return [0] * 10**10\n", "stop", "memory"),
        ("    import sys; sys.exit(0)\n", "stop", "error"),  # an end before the tests is no pass
        ("    print('passed'); import os; os._exit(0)\n", "stop", "error"),
        ("    return (a +", "length", "truncated"),
        ("", "stop", "not extracted"),
    ],
)
def test_outcomes(output: str, finish: str, outcome: str) -> None:
    assert judge(ADD, output, finish).outcome == outcome


@works
@data
@pytest.mark.parametrize("language", LANGUAGES)
def test_solutions_of_the_data_pass_and_empty_ones_do_not(language: str) -> None:
    if (why := toolchain(language).why) and toolchain(language).version is None:
        pytest.skip(why)
    found = load(os.environ["HARNESS_DATA"], ["humaneval_x"], [language], 4)
    assert len(found.problems) == 4 and not found.absent
    for problem in found.problems:
        good = execute(problem, problem.prompt.text + problem.solution)
        assert good.outcome == "passed", (problem.id, good)
        assert execute(problem, "").outcome != "passed"


@works
@data
def test_solutions_of_humaneval_and_mbpp_pass() -> None:
    for problem in load(os.environ["HARNESS_DATA"], ["humaneval", "mbpp"], ["python"], 12).problems:
        whole = problem.solution if problem.data == "mbpp" else problem.prompt.text + problem.solution
        assert execute(problem, whole).outcome == "passed", problem.id


@pytest.mark.parametrize(
    ("ran", "language", "outcome"),
    [
        (Ran(0, None, "passed-x\n", "built-x\n", 0.1, 0, True), "python", "passed"),
        (Ran(0, None, "passed-y\n", "built-x\n", 0.1, 0, True), "python", "error"),  # another run's mark
        (Ran(1, None, "", "SyntaxError\n", 0.1, 0, True), "python", "not compiled"),
        (Ran(1, None, "", "built-x\nAssertionError\n", 0.1, 0, True), "python", "failed"),
        (Ran(1, None, "", "built-x\nMemoryError\n", 0.1, 0, True), "python", "memory"),
        (Ran(137, "output limit", "", "built-x\n", 0.1, 0, True), "python", "output limit"),
        (Ran(0, None, "test result: ok. 0 passed\n", "built-x\n", 0.1, 0, True), "rust", "error"),
        (Ran(0, None, "--- PASS: TestAdd\n", "built-x\n", 0.1, 0, True), "go", "passed"),
    ],
)
def test_verdicts_follow_from_how_a_program_ended(ran: Ran, language: str, outcome: str) -> None:
    assert outcome_of(ran, language, "x") == outcome
