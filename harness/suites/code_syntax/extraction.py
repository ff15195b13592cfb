"""Finds the code in what a model wrote. Knows fences, echoes and stop texts, but no grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.suites.code_syntax.prompt import Prompt

TAGS: dict[str, frozenset[str]] = {
    "python": frozenset({"python", "py", "python3", "py3"}),
    "javascript": frozenset({"javascript", "js", "jsx", "mjs", "node"}),
    "typescript": frozenset({"typescript", "ts", "tsx"}),
    "java": frozenset({"java"}),
    "c": frozenset({"c", "h"}),
    "cpp": frozenset({"cpp", "c++", "cxx", "cc", "hpp"}),
    "go": frozenset({"go", "golang"}),
    "rust": frozenset({"rust", "rs"}),
}
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[ \t]*(.*?)[ \t]*$")
_TAG = re.compile(r"^(?:\{?\.?([A-Za-z0-9_+#.-]+)\}?)(?:$|[ \t]+[\w-]+=.*$|[ \t]*[{:,].*$)")
_KEYWORDS = (
    *("def", "func", "fn", "function", "class", "return", "pass", "yield", "raise", "if", "else", "for", "while"),
    *("let", "const", "var", "import", "from", "use", "package", "public", "private", "static"),
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # not splitlines: it also cuts at U+2028 and the like
_PROSE = re.compile(
    rf"(?!(?:{'|'.join(_KEYWORDS)})\b)(?!.*[;{{}}=\[\]])(?!.*\w\()\S*[^\W\d]\S*(?:\s+\S*[^\W\d]\S*){{2,}}"
)
_UNSEEN = "\ufeff\u200b\u200c\u200d\u2060"  # byte order mark and zero-width characters
_UNFENCED = "(code before its closing fence)"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of the output: its language tag in lower case, or "" ; its lines as written."""

    tag: str
    text: str


def blocks(output: str) -> list[Block]:
    """Fenced blocks in order.

    A fence of backticks or tildes ends at a bare fence of the same kind that is at least as long, or with the text.
    A bare fence right after code that had no opening fence closes that code, which is then the first block.
    """
    found: list[Block] = []
    fence, tag, lines, outside = "", "", list[str](), list[str]()
    for line in _LINE.findall(output):
        match = _FENCE.match(line.rstrip("\r\n"))
        if fence:
            if match and match[1].startswith(fence) and not match[2]:
                found.append(Block(tag, "".join(lines)))
                fence, lines, outside = "", [], []
            else:
                lines.append(line)
        elif match and not match[2] and not found and _is_code("".join(outside)):
            found.append(Block(_UNFENCED, "".join(outside)))
            outside = []
        elif match:
            fence, (tag, first) = match[1], _info(match[2])
            lines = [first + "\n"] if first else []
        else:
            outside.append(line)
    if fence:
        found.append(Block(tag, "".join(lines)))
    return found


def _info(info: str) -> tuple[str, str]:
    """Split what follows a fence into language tag and code: "python" is a tag, "def f(x):" is code."""
    match = _TAG.match(info)
    if not match or match[1] in _KEYWORDS:
        return "", info
    return match[1].lower(), ""


def is_sentence(line: str) -> bool:
    """Whether a line reads like a sentence: three words or more, no sign of code, no keyword in front."""
    return _PROSE.fullmatch(line.strip()) is not None


def _is_code(text: str) -> bool:
    """Whether the first line of some text is code rather than a sentence."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return bool(first) and not is_sentence(first)


def defines(text: str, prompt: Prompt) -> bool:
    """Whether some text declares the prompt's function, rather than calling it."""
    pattern = _declaration(prompt.language).format(entry=re.escape(prompt.entry))
    return re.search(pattern, text, re.MULTILINE) is not None


def _declaration(language: str) -> str:
    if language in ("c", "cpp", "java"):
        return r"^[ \t]*(?!return\b|else\b)[\w:<>\[\],&*. \t]*[\w>\]*&][ \t*&]+{entry}[ \t]*\([^;]*\{{"
    return r"\b(?:def|function|func|fn|const|let|var)[ \t]+{entry}\b"


def extract(prompt: Prompt, output: str) -> str:
    """The code in an output: the block in the prompt's language, else the block that defines the function, else all.

    Leading white space of the first line is kept; a byte order mark and zero-width characters before the output or a
    block are dropped, but not those within: a compiler refuses them. An echo of the prompt is dropped, and what
    follows a stop text, if one is found.
    """
    echo = prompt.text.rstrip()
    output = output.lstrip(_UNSEEN)
    text = _without_echo(output, echo)
    text = _without_echo(_choose(prompt, blocks(text), text).lstrip(_UNSEEN), echo)
    if defines(text, prompt):
        return text
    ends = [at for at in (text.find(stop) for stop in prompt.stops) if at >= 0]
    return text[: min(ends)] if ends else text


def _choose(prompt: Prompt, found: list[Block], whole: str) -> str:
    matched = [block for block in found if block.tag in TAGS[prompt.language] or block.tag == _UNFENCED]
    defining = [block for block in matched or found if defines(block.text, prompt)]
    untagged = [block for block in found if not block.tag]
    for choice in (defining, matched, untagged if len(untagged) == 1 else []):
        if choice:
            return choice[0].text
    return _without_talk(whole) if defines(whole, prompt) else whole


def _without_echo(text: str, echo: str) -> str:
    """Drop the prompt from the start of a text that repeats it, with or without blank lines before it."""
    bare = text.lstrip("\r\n")
    return bare[len(echo) :] if bare.startswith(echo) else text


def _without_talk(text: str) -> str:
    """Drop sentences before the first line of code."""
    lines = _LINE.findall(text)
    first = next((i for i, line in enumerate(lines) if line.strip() and not is_sentence(line)), 0)
    return "".join(lines[first:])
