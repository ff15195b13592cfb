"""Reads ``variants.yaml``. Every fault becomes a ConfigError that names the file and the line; nothing is guessed."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError

from harness.config import Config, Finding, Place, Source, expand
from harness.errors import ConfigError, did_you_mean, one_line
from harness.settings import DraftModel
from harness.yaml_tree import Refused, Tree, read

MAX_BYTES = 1_000_000
_KINDS = {"int_type": "a whole number", "bool_type": "true or false", "string_type": "text", "tuple_type": "a list"}
_KINDS |= {"float_type": "a number", "dict_type": "a map", "model_type": "a map", "missing": "a value"}
_KINDS |= {"model_attributes_type": "a map"}


def load(path: str | Path) -> Config:
    """The configuration in a file, checked as far as it can be without the machine and the models.

    Paths in the file are relative to the file's folder; in the result they are absolute. Top-level keys that start
    with ``x-`` are ignored: a place for anchors.

    Raises:
        ConfigError: A line for each fault, ``file:line: where: found; expected; what to do``.
    """
    text = _text(path)
    name = str(path)
    try:
        tree = read(text)
    except Refused as refusal:
        raise ConfigError(one_line(f"{name}:{refusal.line}: {refusal.message}")) from refusal
    source = Source(name, tree.lines)
    if not isinstance(tree.value, dict):
        found = "is empty" if tree.value is None else f"holds {_describe(tree.value)}"
        raise ConfigError(f"{name}: {found}; expected a map of settings; `harness init` writes a file to start from")
    config, findings = _validate(tree)
    lines = [(line, f"{source.where(place, line)}: {message}") for place, line, message in tree.findings]
    lines += [(source.line(f.path) or 0, f"{source.where(f.path)}: {f.message}") for f in findings]
    if config is None or lines:
        ordered = sorted(dict.fromkeys(lines), key=lambda item: item[0])
        raise ConfigError("\n".join(one_line(message) for _, message in ordered))
    config = _resolve_paths(config.with_source(source), Path(path).resolve().parent)
    expand(config)
    return config


def _text(path: str | Path) -> str:
    file = Path(path)
    try:
        if file.is_dir():
            raise ConfigError(f"{path}: is a folder; expected a YAML file")
        if not file.exists():
            raise ConfigError(f"{path}: no such file; give the path of a variants.yaml, or write one: harness init")
        if not file.is_file():
            raise ConfigError(f"{path}: is not a regular file; expected a YAML file")
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{path}: {size} bytes; expected at most {MAX_BYTES}; is this the right file?")
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if b"\0" in data:
        raise ConfigError(f"{path}: is a binary file; expected YAML text in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from error


def _validate(tree: Tree) -> tuple[Config | None, list[Finding]]:
    """The typed configuration, or what does not fit. Places already found unclear are not reported twice."""
    data = {key: value for key, value in tree.value.items() if not key.startswith("x-")}
    unclear = {place for place, _, _ in tree.findings}
    try:
        return Config.model_validate(data), []
    except ValidationError as error:
        findings: dict[Place, list[str]] = {}
        for detail in error.errors(include_url=False, include_context=True):
            place = _place(detail["loc"], tree.lines)
            if not any(place[: len(known)] == known for known in unclear):
                findings.setdefault(place, []).append(_message(place, detail))
        return None, [Finding(place, _join(messages)) for place, messages in findings.items()]


def _place(loc: tuple[int | str, ...], lines: Mapping[Place, int]) -> Place:
    """A pydantic location without the union members it names, which are no part of the file."""
    place: Place = ()
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if (*place, part) in lines or (last and isinstance(part, str) and part.isidentifier() and _is_key(place, part)):
            place = (*place, part)
    return place


def _message(place: Place, detail: Mapping[str, Any]) -> str:
    kind, found, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        homes = [f"under {'.'.join(map(str, home))}" if home else "at the top level" for home in _homes(place[-1])]
        if homes:
            return f"unknown key here; it belongs {' or '.join(homes)}; move it there"
        return f"unknown key; {did_you_mean(str(place[-1]), _keys(place[:-1]))}"
    if kind == "missing":
        return f"missing; add '{place[-1]}: ...'"
    if kind == "union_tag_not_found":
        return "no kind; expected kind: prompt_lookup or draft_model"
    if kind == "union_tag_invalid":
        known = [tag.strip(" '") for tag in context["expected_tags"].split(",")]
        return f"unknown kind {context['tag']!r}; {did_you_mean(str(context['tag']), known)}"
    if kind == "literal_error" and isinstance(found, str):
        known = [value.strip(" '") for value in context["expected"].replace(" or ", ",").split(",")]
        return f"unknown {found!r}; {did_you_mean(found, known)}"
    if kind == "literal_error":
        return f"found {_describe(found)}; expected {context['expected']}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        letters = "lower-case letters, digits and _ -" if place[0] == "speculate" else "letters, digits and . _ + -"
        return f"found {found!r}; expected {letters}, starting with a letter or digit"
    if kind in _KINDS:
        return f"found {_describe(found)}; expected {_KINDS[kind]}"
    said = str(detail["msg"]).replace("Input should be ", "").replace("String should have ", "")
    return f"found {_describe(found)}; expected {said}"


def _join(messages: list[str]) -> str:
    """One message for the members of a union: they found the same thing, and each expected something else."""
    if len(messages) == 1:
        return messages[0]
    known = [message for message in messages if message.startswith("unknown ")]
    found = (known or messages)[0].partition("; ")[0]
    wanted = [message.partition("; expected ")[2] or message.partition("known: ")[2] for message in messages]
    return f"{found}; expected {' or '.join(dict.fromkeys(wanted))}"


def _describe(value: Any) -> str:
    """A value as a person reading the file would name it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {dict: "a map", list: "a list", type(None): "nothing"}
    return names.get(type(value)) or (f"text {value[:60]!r}" if isinstance(value, str) else repr(value))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation may hold, looking through unions, Annotated and None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from _models(member)
    elif typing.get_origin(annotation) is Annotated:
        yield from _models(typing.get_args(annotation)[0])


def _models_at(place: Place) -> list[type[BaseModel]]:
    """The models that may stand at a place of the configuration."""
    annotations: list[Any] = [Config]
    for part in place:
        below: list[Any] = []
        for annotation in annotations:
            inner = typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation
            if typing.get_origin(inner) in (dict, tuple):
                arguments = [argument for argument in typing.get_args(inner) if argument is not Ellipsis]
                below.append(arguments[-1])
                continue
            for model in _models(inner):
                if part in model.model_fields:
                    below.append(model.model_fields[str(part)].annotation)
        annotations = below
    return [model for annotation in annotations for model in _models(annotation)]


def _keys(place: Place) -> list[str]:
    return sorted({name for model in _models_at(place) for name in model.model_fields})


def _homes(name: int | str, place: Place = ()) -> Iterator[Place]:
    """The fixed places of the configuration with a key of this name; none inside lists or maps of named entries."""
    for model in _models_at(place):
        if name in model.model_fields:
            yield place
        for key, field in model.model_fields.items():
            if any(True for _ in _models(field.annotation)):
                yield from _homes(name, (*place, key))


def _is_key(place: Place, name: str) -> bool:
    return any(name in model.model_fields for model in _models_at(place))


def _resolve_paths(config: Config, folder: Path) -> Config:
    """Paths relative to the file's folder become absolute; a local model or data folder must exist."""
    findings: list[Finding] = []

    def absolute(place: Place, given: str, expected: str) -> str:
        try:
            path = (folder / Path(given).expanduser()).resolve()
            there = path.is_file() if expected == "file" else path.is_dir()
        except (OSError, ValueError, RuntimeError) as error:
            # Too long, a loop of links, a null character, half a surrogate, the home of a user that is not there.
            reason = error.strerror if isinstance(error, OSError) else error
            findings.append(
                Finding(place, f"{given!r} is no usable path ({reason}); expected a {expected}; correct it")
            )
            return given
        if not there:
            findings.append(Finding(place, f"no such {expected}: {path}; paths are relative to this file; correct it"))
        return str(path)

    update: dict[str, Any] = {}
    if config.model.lower().endswith(".gguf") and not config.model.startswith("hf:"):
        update["model"] = absolute(("model",), config.model, "file")
    drafts = {
        name: how.model_copy(update={"model": absolute(("speculate", name, "model"), how.model, "file")})
        for name, how in config.speculate.items()
        if isinstance(how, DraftModel) and how.model
    }
    update["speculate"] = {**config.speculate, **drafts}
    folders = {}
    for name, key in (("mmlu", "data"), ("lm_eval", "include")):
        suite = getattr(config.suites, name)
        if suite is not None and getattr(suite, key) is not None:
            path = absolute(("suites", name, key), getattr(suite, key), "folder")
            folders[name] = suite.model_copy(update={key: path})
    update["suites"] = config.suites.model_copy(update=folders)
    if findings:
        raise config.fault(findings)
    return config.model_copy(update=update)
