"""From a model's output to a program with its tests, and from how that ended to a verdict."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from harness import sandbox
from harness.sandbox import Ran
from harness.suites.code_run.problems import Problem
from harness.suites.code_run.toolchains import RECIPES, limits_of, toolchain
from harness.suites.code_syntax import completed, extract, verdict
from harness.suites.code_syntax.extraction import defines

Outcome = Literal[
    "passed", "failed", "error", "timeout", "memory", "output limit", "not extracted", "truncated", "not compiled"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# How each language says that a test's claim does not hold, and that memory is at its end.
_FAILED = re.compile(r"AssertionError|Assertion .* failed|assertion .*failed|--- FAIL|not equal")
_MEMORY = re.compile(r"MemoryError|bad_alloc|OutOfMemoryError|out of memory|memory allocation of|heap limit")
_NOISE = re.compile(r"^\s*(?:$|Traceback|File |at |\^|=== RUN|running \d|thread .*panicked|node:|\.\.\.|note:|warning)")
_HEAD = re.compile(r"^(?:import|from|#include|using|use)\b.*$", re.MULTILINE)
_GO_IMPORTS = re.compile(r"^import\s*(?:\([^)]*\)|\"[^\"]*\")[ \t]*\n?|^package\s+\w+[ \t]*\n?", re.MULTILINE)
_GO_PACKAGES = (
    *("bytes", "container/heap", "crypto/md5", "errors", "fmt", "math", "math/big", "math/rand", "os", "reflect"),
    *("regexp", "sort", "strconv", "strings", "testing", "time", "unicode", "encoding/hex", "math/bits"),
)
# What the tests use of testify: equal as reflect.DeepEqual has it, and bytes by their content.
_GO_ASSERT = """package main

import ("bytes"; "reflect"; "testing")

type assertion struct{ t *testing.T }

var assert = assertion{}

func (assertion) New(t *testing.T) assertion { return assertion{t} }

func (a assertion) Equal(expected, actual interface{}, said ...interface{}) bool {
	a.t.Helper()
	left, isBytes := expected.([]byte)
	right, both := actual.([]byte)
	same := reflect.DeepEqual(expected, actual)
	if isBytes && both { same = bytes.Equal(left, right) }
	if !same { a.t.Errorf("not equal: expected %#v, found %#v", expected, actual) }
	return same
}
"""
# console.assert only prints.
_JS_ASSERT = "console.assert = (held, ...said) => { if (!held) throw new Error('AssertionError ' + said) };"


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one sample, its wall seconds in the sandbox (0 where it was not run), and the first error."""

    outcome: Outcome
    seconds: float
    error: str | None


def judge(problem: Problem, output: str, finish_reason: str | None) -> Judged:
    """Run what a model wrote against the problem's tests.

    passed: built, all tests held, and the program ran to its end, as only its last line tells. failed: a test did not
    hold. error: it ended otherwise. truncated: cut by the cap of tokens in mid-function; it is not run.

    Args:
        problem: The problem.
        output: All the model wrote.
        finish_reason: "length" if the cap of tokens ended it.

    Raises:
        CellError: Programs can't be run here.
    """
    found = verdict(problem.prompt, output, finish_reason)
    if not found.extracted:
        return Judged("not extracted", 0.0, found.error)
    if found.status == "truncated":
        return Judged("truncated", 0.0, found.error)
    return execute(problem, source_of(problem, output))


def source_of(problem: Problem, output: str) -> str:
    """The program without its tests: the prompt with what continues it, or a whole program that was written anew."""
    prompt = problem.prompt
    code = extract(prompt, output)
    if not defines(code, prompt):
        for text in (prompt.text + code, f"{prompt.text}\n{code}"):
            if (whole := completed(prompt, text, len(prompt.text))) is not None:
                return whole
        return prompt.text + code
    if prompt.language == "java":
        code = re.sub(r"^\s*public\s+(?=class\s)", "", code, flags=re.MULTILINE)
        code = code if re.search(r"\bclass\s+Solution\b", code) else f"class Solution {{\n{code}\n}}"
    head = [line for line in _HEAD.findall(prompt.text) if line.strip() not in code]
    return "\n".join([*head, code]) if prompt.language != "go" else code


def execute(problem: Problem, source: str) -> Judged:
    """Build a program with the problem's tests and run it in the sandbox."""
    recipe, mark = RECIPES[problem.language], secrets.token_hex(8)
    files = files_of(problem, source, mark)
    # What the program says itself can't pass for these marks, which are new each time.
    script = f"{recipe.build} || exit 1\necho built-{mark} >&2\n{recipe.run}\n"
    ran = sandbox.run(
        ["/bin/sh", "-c", script], files, limits_of(problem.language), binds=toolchain(problem.language).binds
    )
    return Judged(outcome_of(ran, problem.language, mark), round(ran.seconds, 4), _first_error(ran, mark))


def outcome_of(ran: Ran, language: str, mark: str) -> Outcome:
    """The verdict on a program that was built and run with a mark."""
    said = ran.stderr + ran.stdout
    if ran.limit is not None:
        return ran.limit
    if f"built-{mark}" not in ran.stderr:
        return "not compiled"
    if ran.code == 0:
        ended = {"go": r"^--- PASS", "rust": r"^test result: ok\. [1-9]"}.get(language, f"^passed-{mark}$")
        return "passed" if re.search(ended, ran.stdout, re.MULTILINE) else "error"
    if _MEMORY.search(said):
        return "memory"
    return "failed" if _FAILED.search(said) else "error"


def _first_error(ran: Ran, mark: str) -> str | None:
    """The line that tells most of why a program did not pass; None if it said nothing."""
    if ran.code == 0 and ran.limit is None:
        return (
            None
            if f"passed-{mark}" in ran.stdout or "PASS" in ran.stdout or "test result: ok" in ran.stdout
            else ("ended before its tests")
        )
    said = [line.strip() for line in (ran.stderr + "\n" + ran.stdout).splitlines()]
    # Node shows the source of what threw, which for a failed assertion is our own line.
    lines = [line for line in said if mark not in line and line != _JS_ASSERT]
    telling = [
        line for line in lines if re.search(r"[Ee]rror|panic|FAIL|not equal|[Aa]ssert|Exception|terminate", line)
    ]
    rest = [line for line in lines if not _NOISE.match(line)]
    found = next(iter([*telling, *rest]), None)
    return found[:200] if found else ran.limit


def files_of(problem: Problem, source: str, mark: str) -> Mapping[str, str]:
    """The files of a program with its tests, by name; at its end it prints "passed-" and the mark."""
    language, tests = problem.language, problem.tests
    name = RECIPES[language].file
    if language == "python":
        return {name: f"{problem.head}{source}\n{tests}\nprint('\\npassed-{mark}')\n"}
    if language == "javascript":
        return {name: f"{_JS_ASSERT}\n{source}\n{tests}\nconsole.log('\\npassed-{mark}');\n"}
    if language == "cpp":
        body, _, rest = tests.rpartition("}")
        return {name: f'{problem.head}{source}\n{body if body else tests}\nputs("\\npassed-{mark}");\n}}{rest}'}
    if language == "java":
        launch = (
            "\nclass Launch { public static void main(String[] args) throws Exception {"
            f' Main.main(args); System.out.println("\\npassed-{mark}"); }} }}\n'
        )
        return {name: f"{source}\n{tests}{launch}"}
    if language == "go":
        body = _GO_IMPORTS.sub("", f"{source}\n{tests}")
        used = [path for path in _GO_PACKAGES if re.search(rf"\b{path.rpartition('/')[2]}\.[A-Z]", body)]
        imports = "".join(f'import "{path}"\n' for path in used)
        return {name: f"package main\n\n{imports}\n{body}", "assert_test.go": _GO_ASSERT}
    return {name: f"{source}\n{tests}"}
