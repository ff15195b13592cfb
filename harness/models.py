"""The model cache: where model files come from, which bytes they are, and their copies in other precisions.

Nothing here measures. Layout of the cache (``$HARNESS_CACHE`` or ``~/.cache/harness``)::

    models/demo/        the default model, taken out of its wheel
    models/quantised/   copies in other precisions, named by source digest, type and engine version
    models/added.json   files that the user registered
    digests/            sha256 of files, by path, valid for one size and time of change
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.backends.llama_cpp.gguf import read_header
from harness.backends.llama_cpp.quantize import FLOAT_TYPES, check_type, estimate_bytes, file_type
from harness.errors import InputError
from harness.fetch import DEMO_FILE, demo_model, hub_model

RESTORED_NOTE = (
    "{name} is distributed as {own}, so its F16 is restored from quantised "
    "weights: it holds no more information than {own}. "
    "Give your own F16 or BF16 GGUF, or an hf: repository with one, for a true reference."
)


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model file that is ready to load.

    Attributes:
        digest: sha256 of the file's bytes, hex.
        source_digest: The same of the file it was made from; equals ``digest`` where nothing was made.
        restored: Whether it was made from quantised weights.
        note: What a reader must know about it, or "".
    """

    path: Path
    digest: str
    name: str
    source_digest: str
    restored: bool
    note: str


def cache_dir() -> Path:
    """The cache folder; made if it is not there."""
    given = os.environ.get("HARNESS_CACHE") or "~/.cache/harness"
    try:
        root = Path(given).expanduser()
        root.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{given}: cannot make the model cache ({reason}); set HARNESS_CACHE elsewhere") from error
    return root


def file_digest(path: Path) -> str:
    """sha256 of a file, remembered for its size and the times of its last change (a copy may keep one of the two)."""
    path = path.resolve()
    if known := _known_digest(path):
        return known
    memo, key = _memo(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _write_json(memo, {"key": key, "sha256": digest})
    return digest


def _known_digest(path: Path) -> str | None:
    """The digest of a file if it was taken before and the file has not changed since."""
    memo, key = _memo(path.resolve())
    known = _read_json(memo)
    return str(known["sha256"]) if known.get("key") == key else None


def _memo(path: Path) -> tuple[Path, list[str | int]]:
    """Where a file's digest is remembered, and what it is valid for."""
    state = path.stat()
    place = cache_dir() / "digests" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    return place, [str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns]


def resolve(model: str, weights: str) -> ResolvedModel:
    """Find, fetch or make the file of a model in one weight precision.

    Args:
        model: "demo", the path of a GGUF file, or "hf:owner/repo[:file]".
        weights: A llama.cpp type such as "f16" or "q4_0"; "own" for the file as it is.

    Raises:
        InputError: If there is no such model, file or type, it can't be fetched, or the disk is too small.
    """
    weights = weights.lower()
    source = find(model)
    own = file_type(read_header(source))
    source_digest = file_digest(source)
    if weights in ("own", own):
        return ResolvedModel(source, source_digest, source.stem, source_digest, False, "")
    check_type(weights)
    if own in FLOAT_TYPES:
        path = _made(source, source_digest, weights)
        return ResolvedModel(
            path, file_digest(path), source.stem, source_digest, False, f"made from {own} by llama.cpp"
        )
    note = RESTORED_NOTE.format(name=source.stem, own=own.upper())
    path = _made(source, source_digest, "f16")
    if weights != "f16":  # all from one F16, so that they differ in precision alone
        path = _made(path, source_digest, weights, free_of=source)
    return ResolvedModel(path, file_digest(path), source.stem, source_digest, True, note)


def at_hand(model: str, weights: str) -> tuple[Path | None, Path | None]:
    """The source file of a model and its file in one precision, where each is here already. Fetches and makes nothing.

    A copy in another precision is found only if the source's digest is known: no file is read whole for this.
    """
    source = _source_at_hand(model)
    if source is None or file_type(read_header(source)) == weights:
        return source, source
    made = _copy_at_hand(source, source, weights)
    if made is None and weights != "f16":  # from quantised weights, copies are made from the one F16
        f16 = _copy_at_hand(source, source, "f16")
        made = _copy_at_hand(source, f16, weights) if f16 else None
    return source, made


def _copy_at_hand(source: Path, origin: Path, weights: str) -> Path | None:
    """The copy in a precision that was made from ``origin``, by any version of the engine."""
    digest = _known_digest(origin)
    folder = cache_dir() / "models" / "quantised"
    made = sorted(folder.glob(f"{source.stem}-{digest[:16]}-{weights}-*.gguf")) if digest else []
    return made[-1] if made else None


def _source_at_hand(model: str) -> Path | None:
    if model == "demo":
        path = cache_dir() / "models" / "demo" / DEMO_FILE
        return path if path.is_file() else None
    return None if model.startswith("hf:") else find(model)


def find(model: str) -> Path:
    """Path of the source file of a model, fetched if need be."""
    if model == "demo":
        return demo_model(cache_dir() / "models" / "demo", file_digest)
    if model.startswith("hf:"):
        return hub_model(model)
    path = Path(os.path.expanduser(model))
    if not path.is_file():
        known = _added()
        if model in known:
            return Path(known[model])
        raise InputError(
            f"model: no file {model!r}; expected demo, a GGUF file, or hf:owner/repo[:file]; check the path"
        )
    return path


def listing() -> list[dict[str, str | int]]:
    """What is in the cache: name, kind (demo, quantised, added), path and bytes."""
    root = cache_dir() / "models"
    found: list[dict[str, str | int]] = []
    for kind in ("demo", "quantised"):
        for path in sorted((root / kind).glob("*.gguf")):
            found.append({"name": path.stem, "kind": kind, "path": str(path), "bytes": path.stat().st_size})
    for name, text in sorted(_added().items()):
        size = Path(text).stat().st_size if Path(text).exists() else 0
        found.append({"name": name, "kind": "added", "path": text, "bytes": size})
    return found


def add(model: str) -> Path:
    """Fetch a model and check that it is whole; register a file of the user's under its name. Returns its path.

    A user's file stays where it is; afterwards its name alone finds it.
    """
    path = find(model).resolve()
    read_header(path)
    file_digest(path)
    if model != "demo" and not model.startswith("hf:"):
        registry = cache_dir() / "models" / "added.json"
        with _locked(registry):
            _write_json(registry, _added() | {path.stem: str(path)})
    return path


def _added() -> dict[str, str]:
    path = cache_dir() / "models" / "added.json"
    if not path.exists():
        return {}
    try:
        return {str(name): str(value) for name, value in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError) as error:
        raise InputError(f"{path}: not a JSON object ({error}); delete it and add the models again") from error


def _made(source: Path, source_digest: str, weights: str, free_of: Path | None = None) -> Path:
    """The copy of ``source`` in another precision, made once."""
    from harness.backends.llama_cpp.library import engine_version
    from harness.backends.llama_cpp.quantize import quantise

    stem = (free_of or source).stem
    target = cache_dir() / "models" / "quantised" / f"{stem}-{source_digest[:16]}-{weights}-{engine_version()}.gguf"
    with _locked(target):
        if not target.exists():
            require_space(
                target.parent, estimate_bytes(read_header(source), weights), f"the {weights} copy of {source.name}"
            )
            quantise(source, target, weights, threads=os.cpu_count() or 1)
    return target


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise InputError with the figures unless ``needed`` bytes are free there."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{folder}: {free:,} bytes free; {what} needs about {needed:,}; "
            "free some space or set HARNESS_CACHE to another disk"
        )


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Hold the lock of a file that is about to be made; waits for another process that makes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(target.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file closes
        yield


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file is absent or damaged (a cache is made anew)."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_text(json.dumps(value))
    partial.replace(path)
