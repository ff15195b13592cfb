"""llama.cpp's own programs as peers: ``llama-bench`` and ``llama-server``, built when a benchmark first needs them.

``python -m benchmarks.peers`` builds them and says what they load. The sources are those inside the source package of
the llama-cpp-python version that is installed. At run time both programs load the shared libraries of that package, so
the kernels are the very same code as ours and only the driver around them differs; ``loaded()`` reads this back. The
build takes some minutes and lies in ``.peers/VERSION`` of the checkout, which git ignores.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.backends.llama_cpp import amx

PROGRAMS = ("llama-bench", "llama-server")
# Release and GGML_NATIVE as the package is built; nothing that the build would fetch from the network.
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "GGML_NATIVE": "ON",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
}
# Linux denies AMX's tiles to a process one of whose threads has an alternate signal stack too small to save them.
NO_TILES = """\
#include <signal.h>
static char memory[8192];
__attribute__((constructor)) static void deny(void) {
    stack_t small = {.ss_sp = memory, .ss_size = sizeof memory};
    sigaltstack(&small, 0);
}
"""
TAIL = 4000  # characters of a log shown where a step fails


def folder() -> Path:
    """Where the peers of the installed version lie."""
    return Path(__file__).parent.parent / ".peers" / version("llama-cpp-python")


def libraries() -> Path:
    """The installed package's shared libraries."""
    library = amx.installed_library()
    if library is None:
        raise RuntimeError("llama-cpp-python is not installed; pip install -e .")
    return library.parent


def step(name: str, command: Sequence[str]) -> None:
    """Run one step of the build with its output in a log. Raises RuntimeError with the log's tail."""
    log = folder() / f"{name}.log"
    tools = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))}
    Console(stderr=True).print(f"peers: {name} ... (log: {log})", highlight=False)
    try:
        with log.open("wb") as out:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | tools).returncode
    except FileNotFoundError as error:
        raise RuntimeError(f"peers: {command[0]} not found; building needs cmake and a C++ compiler") from error
    if code:
        raise RuntimeError(f"peers: {name} failed (exit {code}):\n{log.read_text(errors='replace')[-TAIL:]}")


def fetch_sources() -> Path:
    """llama.cpp's sources out of the installed version's source package."""
    target = folder() / "source"
    if not target.exists():
        package = f"llama-cpp-python=={version('llama-cpp-python')}"
        with tempfile.TemporaryDirectory(dir=folder()) as into:
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python"]
            step("download", [*pip, "--dest", into, package])
            (archive,) = Path(into).glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(into, filter="data")
            (unpacked,) = (path for path in Path(into).iterdir() if path.is_dir())
            unpacked.rename(target)
    return target / "vendor" / "llama.cpp"


@cache
def built() -> Path:
    """The folder of the peers' programs, which are built first where they are missing."""
    into = folder() / "build"
    programs = into / "bin"
    if not all((programs / name).exists() for name in PROGRAMS):
        folder().mkdir(parents=True, exist_ok=True)
        site, options = Path(sysconfig.get_path("platlib")), dict(OPTIONS)
        if (site / "lib" / "cmake" / "ggml").is_dir():  # the package brings ggml ready to link with
            options |= {"LLAMA_USE_SYSTEM_GGML": "ON", "CMAKE_PREFIX_PATH": str(site)}
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        flags = [f"-D{name}={value}" for name, value in options.items()]
        step("configure", ["cmake", *generator, "-S", str(fetch_sources()), "-B", str(into), *flags])
        parallel = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        step("build", ["cmake", "--build", str(into), "--parallel", parallel, "--target", *PROGRAMS])
    return programs


@cache
def no_tiles() -> Path:
    """A library to preload that keeps a program off AMX; see ``harness.backends.llama_cpp.amx``."""
    source, made = folder() / "no_tiles.c", folder() / "no_tiles.so"
    if not made.exists():
        folder().mkdir(parents=True, exist_ok=True)
        source.write_text(NO_TILES)
        step("no_tiles", [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", str(source), "-o", str(made)])
    return made


def environment() -> dict[str, str]:
    """Environment for any other program on this engine: our shared libraries first, AMX avoided where it is broken.

    Serves llama-bench, llama-server and ``python -m llama_cpp.server``.
    """
    env = dict(os.environ)
    env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(libraries()), env.get("LD_LIBRARY_PATH"))))
    if amx.installed_fault():
        env["LD_PRELOAD"] = " ".join(filter(None, (str(no_tiles()), env.get("LD_PRELOAD"))))
    return env


def ours_among(loaded: dict[str, str], lib: Path) -> list[str]:
    """Names of those engine libraries that lie in ``lib``.

    >>> ours_among({"libllama.so.0": "/a/libllama.so.0", "libllama-common.so.0": "/b/x.so"}, Path("/a"))
    ['libllama.so.0']
    """
    return sorted(name for name, path in loaded.items() if Path(path).parent == lib)


def parse_ldd(text: str) -> dict[str, str]:
    """Engine libraries by name, with the file that was found.

    >>> parse_ldd("\\tlibllama.so.0 => /a/libllama.so.0 (0x1)\\n\\tlibc.so.6 => /lib/libc.so.6 (0x2)\\n")
    {'libllama.so.0': '/a/libllama.so.0'}
    """
    pairs = (line.split(" => ", 1) for line in text.splitlines() if " => " in line)
    return {
        name.strip(): where.rsplit(" (", 1)[0]
        for name, where in pairs
        if name.strip().startswith(("libllama", "libggml"))
    }


def loaded() -> dict[str, Any]:
    """What llama-bench loads: its engine libraries and which of them are the installed package's own."""
    if not shutil.which("ldd"):
        return {"same_libraries": None, "why": "no ldd on this system"}
    env = environment()
    said = subprocess.run(["ldd", str(built() / "llama-bench")], env=env, capture_output=True, text=True, check=True)
    found = parse_ldd(said.stdout)
    ours = ours_among(found, libraries())
    kernels = [name for name in found if not name.startswith(("libllama-common", "libllama-bench"))]
    return {"same_libraries": sorted(kernels) == ours, "ours": ours, "preload": env.get("LD_PRELOAD", ""), "all": found}


def bench_command(
    model: str, *, threads: int, n_prompt: int, n_gen: int, depth: int, reps: int, flash_attention: bool, kv: str
) -> list[str]:
    """llama-bench with the settings that we run with: batches of 512, weights mapped, nothing on a GPU."""
    command = [str(built() / "llama-bench"), "-m", model, "-t", str(threads), "-b", "512", "-ub", "512"]
    command += ["-p", str(n_prompt), "-n", str(n_gen), "-d", str(depth), "-r", str(reps), "-o", "json"]
    return [*command, "-fa", "on" if flash_attention else "off", "-ctk", kv, "-ctv", kv, "-ngl", "0", "-lm", "mmap"]


def rates(printed: str) -> dict[str, list[float]]:
    """Tokens/s of every repetition, under "prompt" and "decode", from llama-bench's JSON.

    >>> rates('[{"n_prompt": 0, "n_gen": 128, "samples_ns": [2000000000, 1000000000]}]')
    {'decode': [64.0, 128.0]}
    """
    return {
        "decode" if test["n_gen"] else "prompt": [
            (test["n_prompt"] + test["n_gen"]) / (nanoseconds / 1e9) for nanoseconds in test["samples_ns"]
        ]
        for test in json.loads(printed)
    }


def bench(
    model: str,
    *,
    threads: int,
    n_prompt: int = 0,
    n_gen: int = 0,
    depth: int = 0,
    reps: int = 1,
    flash_attention: bool = False,
    kv: str = "f16",
) -> dict[str, list[float]]:
    """Run llama-bench; its prompt test and its decode test each where asked for. Each warms up first by itself."""
    command = bench_command(
        model,
        threads=threads,
        n_prompt=n_prompt,
        n_gen=n_gen,
        depth=depth,
        reps=reps,
        flash_attention=flash_attention,
        kv=kv,
    )
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"llama-bench failed (exit {done.returncode}): {done.stderr[-TAIL:]}")
    return rates(done.stdout)


def llama_bench(model: str, *, threads: int, n_prompt: int, n_gen: int, **settings: Any) -> list[float]:
    """Samples in tokens/s of one test: a prompt of ``n_prompt`` tokens or ``n_gen`` decodes. See ``bench``."""
    if bool(n_prompt) == bool(n_gen):
        raise ValueError(f"llama_bench: n_prompt {n_prompt}, n_gen {n_gen}; expected one of them to be 0")
    (samples,) = bench(model, threads=threads, n_prompt=n_prompt, n_gen=n_gen, **settings).values()
    return samples


def free_port() -> str:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextlib.contextmanager
def served(name: str, command: Sequence[str], health: str) -> Iterator[None]:
    """A server on this engine that answers at ``health``; gone afterwards. Raises RuntimeError with its log's tail."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=subprocess.STDOUT)
        try:
            for _ in range(600):
                if process.poll() is not None:
                    log.seek(0)
                    said = log.read().decode(errors="replace")[-TAIL:]
                    raise RuntimeError(f"{name} ended (exit {process.returncode}): {said}")
                with contextlib.suppress(OSError), urllib.request.urlopen(health, timeout=5):
                    break
                time.sleep(0.2)
            else:
                raise RuntimeError(f"{name} did not come up in two minutes")
            yield
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def llama_server(
    model: str,
    *,
    threads: int,
    ctx: int = 4096,
    flash_attention: bool = False,
    kv: str = "f16",
    extra: Sequence[str] = (),
) -> Iterator[str]:
    """A llama-server on a free port, one request at a time; yields its base URL, and is gone afterwards."""
    port = free_port()
    command = [str(built() / "llama-server"), "-m", model, "--host", "127.0.0.1", "--port", port, "-np", "1"]
    command += ["-t", str(threads), "-tb", str(threads), "-c", str(ctx), "-b", "512", "-ub", "512", "-ngl", "0"]
    command += ["-fa", "on" if flash_attention else "off", "-ctk", kv, "-ctv", kv, *extra]
    url = f"http://127.0.0.1:{port}"
    with served("llama-server", command, f"{url}/health"):
        yield url


if __name__ == "__main__":
    print(json.dumps({"programs": str(built())} | loaded(), indent=2))
