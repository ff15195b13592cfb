"""Does a completed function parse? Python by its own compiler, the others by tree-sitter. Nothing is executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from harness.suites.code_syntax.extraction import defines, extract, is_sentence
from harness.suites.code_syntax.prompt import Prompt

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Status = Literal["parsed", "invalid", "truncated", "empty"]
MAX_BYTES = 64 * 1024
_MAX_ENDS = 400
_GRAMMARS: dict[str, tuple[str, str]] = {
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "java": ("tree_sitter_java", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "go": ("tree_sitter_go", "language"),
    "rust": ("tree_sitter_rust", "language"),
}
_SPLIT_BODY = re.compile(r"(?:return|yield|elif|else|except|finally|break|continue|raise|pass|await)\b")
_NO_CODE = re.compile(r"[\s{}();]*")


@dataclass(frozen=True, slots=True)
class Fault:
    """The first fault of a source: what, and on which line (1 is the source's first)."""

    error: str
    line: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one completion.

    Attributes:
        extracted: Whether the output holds code at all: not empty, not a comment, not prose.
        status: parsed | invalid | truncated (does not parse, and the token cap cut it) | empty (no code).
        error: The first fault, None if parsed.
        line: Its line in prompt + completion, or in the completion where that is a whole program.
    """

    extracted: bool
    status: Status
    error: str | None = None
    line: int | None = None


def verdict(prompt: Prompt, output: str, finish_reason: str | None) -> Verdict:
    """Judge one completion.

    The completion is tried behind its prompt and, where it declares the function itself, alone. Text after the end
    of the function's block is dropped: a base model rambles on.

    Args:
        prompt: What was completed.
        output: All the model wrote.
        finish_reason: "length" if the token cap ended it.
    """
    cut = finish_reason == "length"
    code = extract(prompt, output)
    if _NO_CODE.fullmatch(code):
        return Verdict(False, "empty", "no code", None)
    whole = defines(code, prompt)
    sources = [(prompt.text + code, len(prompt.text)), *([(code, 0)] if whole else [])]
    results = [_check(prompt, source, start) for source, start in sources]
    if None in results:
        return Verdict(True, "parsed")
    fault = next(result for result in reversed(results) if result is not None)
    if fault.error == _EMPTY_BODY or (not whole and _says_nothing(code, prompt.language)):
        return Verdict(False, "truncated" if cut else "empty", "no code", fault.line)
    return Verdict(True, "truncated" if cut else "invalid", fault.error, fault.line)


_EMPTY_BODY = "the function has no statement"


def _check(prompt: Prompt, source: str, start: int) -> Fault | None:
    """None if some prefix of the source that reaches beyond ``start`` is the whole function and parses."""
    if len(source.encode()) > MAX_BYTES:
        return Fault(f"longer than {MAX_BYTES} bytes", 1)
    find = python_fault if prompt.language == "python" else tree_fault
    for end in _ends(prompt, source, start):
        if defines(source[:end], prompt) and find(source[:end], prompt) is None:
            return None
    return find(source, prompt)


def _ends(prompt: Prompt, source: str, start: int) -> Iterator[int]:
    """Where the function's block may end, first to last: a closing brace; in Python, before a line without indent."""
    if prompt.language == "python":
        found = re.compile(r"^(?=[^\s)\]}])", re.MULTILINE).finditer(source, start)
        ends = (match.start() for match in found if not _SPLIT_BODY.match(source, match.start()))
    else:
        ends = (match.end() for match in re.compile("}").finditer(source, start))
    for _, end in zip(range(_MAX_ENDS), ends, strict=False):
        yield end


def python_fault(source: str, prompt: Prompt) -> Fault | None:
    """The first fault by CPython's own ``compile``, which sees more than a grammar does; None if there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<completion>", "exec", dont_inherit=True)
            tree = ast.parse(source)
    except SyntaxError as error:
        return Fault(f"{type(error).__name__}: {error.msg}", error.lineno or 1)
    except (ValueError, MemoryError, RecursionError, OverflowError) as error:
        return Fault(f"{type(error).__name__}: {error}", 1)
    bodies = [n.body for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == prompt.entry]
    if bodies and not any(_does_something(body) for body in bodies):
        return Fault(_EMPTY_BODY, 1)
    return None


def _does_something(body: list[ast.stmt]) -> bool:
    docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str)
    return len(body) > int(docstring)


def tree_fault(source: str, prompt: Prompt) -> Fault | None:
    """The first ERROR or MISSING node of tree-sitter's tree, or an empty function; None if there is neither."""
    root = _parser(prompt.language).parse(source.encode()).root_node
    if root.has_error:
        node = next(node for node in _walk(root) if node.is_error or node.is_missing)
        near = (node.text or b"").decode(errors="replace").strip().split("\n")[0][:40]
        return Fault(f"MISSING {node.type}" if node.is_missing else f"ERROR near '{near}'", node.start_point[0] + 1)
    bodies = [body for node in _walk(root) if (body := _body_of(node, prompt.entry)) is not None]
    if bodies and not any(child.is_named and "comment" not in child.type for body in bodies for child in body.children):
        return Fault(_EMPTY_BODY, bodies[0].start_point[0] + 1)
    return None


def _body_of(node: Node, entry: str) -> Node | None:
    """The body of a declaration whose own head names the function."""
    body = node.child_by_field_name("body")
    if body is None or node.text is None:
        return None
    head = node.text[: body.start_byte - node.start_byte].decode(errors="replace")
    return body if re.search(rf"\b{re.escape(entry)}\b", head) else None


def _walk(root: Node) -> Iterator[Node]:
    """Every node, parents first, in source order; without recursion, for deep trees."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


@cache
def _parser(language: str) -> Parser:
    from tree_sitter import Language, Parser

    module, function = _GRAMMARS[language]
    return Parser(Language(getattr(import_module(module), function)()))


def _says_nothing(code: str, language: str) -> bool:
    """Whether the text is only comments and brackets, or only sentences."""
    comment = r"^\s*#.*$" if language == "python" else r"/\*[\s\S]*?\*/|^\s*//.*$"
    bare = re.sub(comment, "", code, flags=re.MULTILINE)
    lines = [line for line in bare.splitlines() if not _NO_CODE.fullmatch(line)]
    return sum(map(is_sentence, lines)) * 2 > len(lines) or not lines
