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
_EMPTY_BODY = "the function has no statement"
_NO_CODE = re.compile(r"[\s{}();]*")
_COMMENTS = (re.compile(r"/\*[\s\S]*?\*/|^\s*//.*$", re.MULTILINE), re.compile(r"^\s*#.*$", re.MULTILINE))


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
    code = extract(prompt, output)
    cut: Status | None = "truncated" if finish_reason == "length" else None
    if _NO_CODE.fullmatch(code):
        return Verdict(False, "empty", "no code")
    if _NO_CODE.fullmatch(_COMMENTS[prompt.language == "python"].sub("", code)):
        return Verdict(False, cut or "empty", "only comments")
    whole, start = defines(code, prompt), len(prompt.text)
    tries = [(code, 0)] if whole else []
    # The second way, because a block out of a fence lacks the line break that the prompt waits for.
    tries += [(prompt.text + code, start), (f"{prompt.text}\n{code}", start)]
    faults = [fault for source, at in tries if (fault := _check(prompt, source, at)) is not None]
    if len(faults) < len(tries):
        return Verdict(True, "parsed")
    if faults[0].error == _EMPTY_BODY or (not whole and _is_prose(code)):
        return Verdict(False, cut or "empty", "no code", faults[0].line)
    return Verdict(True, cut or "invalid", faults[0].error, faults[0].line)


def closed(prompt: Prompt, output: str) -> bool:
    """Whether the function is complete already, so that nothing the model may still write can change the verdict.

    For ending a generation early; worth asking at each new line.
    """
    return completed(prompt, prompt.text + output, len(prompt.text)) is not None


def completed(prompt: Prompt, source: str, start: int) -> str | None:
    """The source as far as the end of the function's block beyond ``start``, with the closing; None if open."""
    ends = _ends(prompt, source, start)
    tries = (source[:end] + prompt.closing for end in ends)
    return next((text for text in tries if _stands(prompt, text)), None)


def _check(prompt: Prompt, source: str, start: int) -> Fault | None:
    """None if some prefix of the source that reaches beyond ``start`` is the whole function and parses."""
    if len(source.encode()) > MAX_BYTES:
        return Fault(f"longer than {MAX_BYTES} bytes", 1)
    if completed(prompt, source, start) is not None:
        return None
    return _fault(prompt, source)


def _stands(prompt: Prompt, source: str) -> bool:
    return defines(source, prompt) and _fault(prompt, source) is None


def _fault(prompt: Prompt, source: str) -> Fault | None:
    return python_fault(source, prompt) if prompt.language == "python" else tree_fault(source, prompt)


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
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    bodies = [function.body for function in functions if function.name == prompt.entry]
    if bodies and not any(_does_something(body) for body in bodies):
        return Fault(_EMPTY_BODY, 1)
    return None


def _does_something(body: list[ast.stmt]) -> bool:
    """Whether a body holds more than texts: a second docstring is no more of a program than the first."""
    return not all(
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        for statement in body
    )


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


def _is_prose(code: str) -> bool:
    """Whether most lines read like sentences."""
    lines = [line for line in code.splitlines() if not _NO_CODE.fullmatch(line)]
    return sum(map(is_sentence, lines)) * 2 > len(lines)
