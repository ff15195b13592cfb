"""YAML text to plain values with the line of each, refusing what two YAML versions read differently.

YAML 1.1 and 1.2 disagree on ``no``, ``12:30``, ``0123``, ``1e3``; a value that depends on the reader is a finding here,
never a guess. Knows nothing of the configuration's shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

MAX_NODES = 20_000
MAX_DEPTH = 30
# No number or word that readers could take differently is longer; keeps the patterns below from long texts.
MAX_NUMBER = 100

Place = tuple[str | int, ...]

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"([-+]?[0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?")
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_AMBIGUOUS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)yes|no|on|off"), "some YAML readers take it for true or false; write true, false or quote it"),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"), "some YAML readers take it for base 60; quote it"),
    (re.compile(r"[-+]?0[0-9_]+"), "some YAML readers take it for octal; drop the leading zero or quote it"),
    (re.compile(r"[-+]?0[box][0-9a-fA-F_]+"), "YAML readers differ on it; write a decimal number or quote it"),
    (
        re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)([eE][-+]?[0-9]+)"),
        "some YAML readers take it for text; write the number out, or quote it",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"),
        "YAML readers differ on it; drop the underscores or quote it",
    ),
    (re.compile(r"[-+]\.[0-9]+"), "YAML readers differ on it; write a digit before the point"),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), "not a usable number; write a finite one or quote it"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*"), "some YAML readers take it for a date; quote it"),
    (re.compile(r"="), "YAML readers differ on it; quote it"),
)


class Refused(Exception):
    """The text cannot be read further: bad syntax, or a limit is reached. ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(slots=True)
class Tree:
    """A document as plain values, the line of every place in it, and what was found wrong while reading."""

    value: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    findings: list[tuple[Place, int, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Node:
    """One node: a scalar's text and plainness, or children. Aliases share their node."""

    line: int
    text: str | None = None
    plain: bool = False
    items: list[_Node] | None = None
    pairs: list[tuple[_Node, _Node]] | None = None


class _Reader:
    """Builds nodes from parser events, within limits."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Event] = YAML(typ="safe", pure=True).parse(text)
        self._anchors: dict[str, _Node] = {}
        self._count = 0
        self.line = 1

    def document(self) -> _Node | None:
        """The one document's root, or None where the text has none."""
        root = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise Refused(event.start_mark.line + 1, "a second document; expected one; remove the '---'")
                root = self._node(next(self._events), 0)
        return root

    def _node(self, event: Any, depth: int) -> _Node:
        line = self.line = event.start_mark.line + 1
        self._count += 1
        if self._count > MAX_NODES:
            raise Refused(line, f"more than {MAX_NODES} values; is this the right file?")
        if depth > MAX_DEPTH:
            raise Refused(line, f"nested deeper than {MAX_DEPTH} levels; is this the right file?")
        if isinstance(event, AliasEvent):
            if event.anchor not in self._anchors:
                raise Refused(
                    line, f"alias '*{event.anchor}' refers to itself or to nothing; define '&{event.anchor}' first"
                )
            return self._anchors[event.anchor]
        if event.tag is not None:
            raise Refused(line, f"tag '{event.tag}'; tags are not supported; remove it")
        node = self._fill(event, _Node(line), depth)
        # Registered only once complete, so no value can contain itself.
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _fill(self, event: Any, node: _Node, depth: int) -> _Node:
        if isinstance(event, ScalarEvent):
            node.text, node.plain = event.value, event.style is None
        elif isinstance(event, SequenceStartEvent):
            node.items = []
            while not isinstance(child := next(self._events), SequenceEndEvent):
                node.items.append(self._node(child, depth + 1))
        elif isinstance(event, MappingStartEvent):
            node.pairs = []
            while not isinstance(child := next(self._events), MappingEndEvent):
                key = self._node(child, depth + 1)
                node.pairs.append((key, self._node(next(self._events), depth + 1)))
        return node


class _Converter:
    """Turns nodes into plain values; counts again, because aliases multiply."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._count = 0

    def convert(self, node: _Node, place: Place) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            raise Refused(node.line, f"aliases expand to more than {MAX_NODES} values; use fewer")
        if len(place) > MAX_DEPTH:
            raise Refused(node.line, f"aliases nest deeper than {MAX_DEPTH} levels; use fewer")
        self.tree.lines.setdefault(place, node.line)
        if node.items is not None:
            return [self.convert(child, (*place, index)) for index, child in enumerate(node.items)]
        if node.pairs is not None:
            return self._mapping(node, place)
        return self._scalar(node, place)

    def _find(self, place: Place, line: int, message: str) -> None:
        self.tree.findings.append((place, line, message))

    def _scalar(self, node: _Node, place: Place) -> Any:
        text = node.text or ""
        if not node.plain or len(text) > MAX_NUMBER:
            return text
        for pattern, advice in _AMBIGUOUS:
            if pattern.fullmatch(text) and not _FLOAT.fullmatch(text):
                self._find(place, node.line, f"{text!r} is ambiguous: {advice}")
                return text
        if text in _NULL:
            self._find(place, node.line, "no value; give one, or remove the key ({} means all defaults)")
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INT.fullmatch(text) and len(text) <= 19:
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def _key(self, node: _Node, place: Place) -> str | None:
        if node.text is None:
            self._find(place, node.line, "a key that is a list or a map; expected a word")
            return None
        value = self._scalar(node, (*place, node.text))
        if not isinstance(value, str):
            self._find(place, node.line, f"key {node.text!r} is not text; quote it")
        return node.text

    def _mapping(self, node: _Node, place: Place, merges: int = 0) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: list[_Node] = []
        for key_node, value_node in node.pairs or ():
            if key_node.plain and key_node.text == "<<":
                merged += value_node.items if value_node.items is not None else [value_node]
                continue
            key = self._key(key_node, place)
            if key is None:
                continue
            inside = (*place, key)
            if key in own:
                first = self.tree.lines[inside]
                self._find(inside, key_node.line, f"duplicate key {key!r}, first given on line {first}; keep one")
                continue
            self.tree.lines[inside] = key_node.line
            if value_node.plain and not value_node.text:
                # The parser places an absent value where the next thing begins.
                value_node.line = key_node.line
            own[key] = self.convert(value_node, inside)
        for source in merged:
            self._merge(source, place, own, merges + 1)
        return own

    def _merge(self, source: _Node, place: Place, own: dict[str, Any], merges: int) -> None:
        """What ``<<`` brings; keys that are already there win, as the merge key's specification says."""
        if source.pairs is None:
            self._find(place, source.line, "'<<' merges something that is not a map; expected *an-anchor of a map")
            return
        if merges > MAX_DEPTH:
            raise Refused(source.line, f"'<<' nests deeper than {MAX_DEPTH} levels; use fewer")
        # Converted apart, so that lines of keys that lose do not replace lines of keys that win.
        inherited = _Converter()
        inherited._count = self._count
        values = inherited._mapping(source, place, merges)
        self._count = inherited._count
        self.tree.findings += inherited.tree.findings
        for key in values.keys() - own.keys():
            own[key] = values[key]
            inside = (*place, key)
            self.tree.lines.update({k: v for k, v in inherited.tree.lines.items() if k[: len(inside)] == inside})


def read(text: str) -> Tree:
    """The one document in ``text``.

    Raises:
        Refused: Bad syntax, tags, more than one document, too deep or too many values.
    """
    reader = _Reader(text)
    try:
        root = reader.document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "bad YAML"
        raise Refused(mark.line + 1 if mark else 1, f"not valid YAML: {' '.join(str(problem).split())}") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Refused(line, "not valid YAML: a control character; remove it") from error
    except YAMLError as error:
        raise Refused(1, f"not valid YAML: {' '.join(str(error).split())}") from error
    except (ValueError, OverflowError) as error:
        raise Refused(reader.line, f"not valid YAML: an escape that is no character ({error})") from error
    converter = _Converter()
    if root is not None:
        converter.tree.value = converter.convert(root, ())
    return converter.tree
