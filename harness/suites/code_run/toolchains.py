"""Compilers and interpreters: which are there, and how a program of each language is built and run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness import sandbox
from harness.errors import CellError
from harness.sandbox import Limits

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a language's programs are run.

    Attributes:
        tools: Programs that must be there; the first one's version is told.
        file: Name of the program's file.
        build, run: Shell commands; a build that fails is the verdict "not compiled".
        version: Arguments that make the first tool tell its version.
        wall_s: Seconds for both.
    """

    tools: tuple[str, ...]
    file: str
    build: str
    run: str
    version: str = "--version"
    wall_s: float = 60.0


_GO = "export GO111MODULE=off GOCACHE=/work/cache GOPATH=/work/path GOMAXPROCS=2 GOFLAGS=-p=2;"
RECIPES: Mapping[str, Recipe] = {
    "python": Recipe(
        ("python3",), "program.py", "python3 -m py_compile program.py", "exec python3 program.py", wall_s=15.0
    ),
    "cpp": Recipe(("g++",), "program.cpp", "g++ -std=c++17 -O1 -w -o program program.cpp", "exec ./program"),
    "java": Recipe(
        ("javac", "java"),
        "Main.java",
        "javac -J-Xmx512m -J-XX:-UsePerfData -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -nowarn Main.java",
        "exec java -Xmx512m -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Launch",
        "-version",
    ),
    "javascript": Recipe(("node",), "program.js", "node --check program.js", "exec node program.js", wall_s=20.0),
    "go": Recipe(
        ("go",),
        "program_test.go",
        f"{_GO} go test -vet=off -c -o program program_test.go assert_test.go",
        "exec ./program -test.v",
        "version",
    ),
    "rust": Recipe(
        ("rustc", "cc"),
        "program.rs",
        "rustc --test --edition 2021 -A warnings -C debuginfo=0 -o program program.rs",
        "exec ./program",
    ),
}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A language's tools as the sandbox sees them: version, or why not; folders to show it."""

    version: str | None
    why: str = ""
    binds: tuple[str, ...] = ()


def limits_of(language: str) -> Limits:
    """What a program of a language may use; compilers need more room than an interpreter."""
    if language == "python":
        return Limits(wall_s=RECIPES[language].wall_s)
    return Limits(
        memory_bytes=2048 * _MIB,
        processes=128,
        cpu_s=30,
        wall_s=RECIPES[language].wall_s,
        file_bytes=128 * _MIB,
        disk_bytes=512 * _MIB,
    )


@cache
def toolchain(language: str) -> Toolchain:
    """Whether a language's programs can be built and run, asked inside the sandbox."""
    recipe, binds = RECIPES[language], []
    for tool in recipe.tools:
        if Path("/usr/bin", tool).exists():
            continue
        found = shutil.which(tool)
        if found is None:
            return Toolchain(None, f"{tool} not found")
        binds.append(str(_prefix(tool, found)))
    try:
        first = [recipe.tools[0], recipe.version]
        ran = sandbox.run(first, limits=limits_of(language), binds=tuple(dict.fromkeys(binds)))
    except CellError as error:
        return Toolchain(None, str(error))
    said = next(iter((ran.stdout + ran.stderr).splitlines()), f"exit {ran.code}")
    if ran.code or ran.limit:
        return Toolchain(None, f"{recipe.tools[0]} does not run in the sandbox: {ran.limit or said}")
    return Toolchain(said, binds=tuple(dict.fromkeys(binds)))


def _prefix(tool: str, found: str) -> Path:
    """The folder of a tool outside /usr; rustup's rustc only stands for the real one."""
    if tool == "rustc":
        asked = subprocess.run(
            [found, "--print", "sysroot"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            return Path(asked.stdout.strip())
    return Path(found).resolve().parent.parent
