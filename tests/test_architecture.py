"""How the package hangs together: what may import what, what stays pure, and what stays out of start-up."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "harness"
MODULES = sorted(path for path in ROOT.rglob("*.py") if "_suites" not in path.parts)

# From the bottom up; a module imports from its own layer or from one below.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "record", "units", "yaml_tree", "run.clock"),
    ("stats", "metrics", "settings", "suite_settings", "energy_settings", "backends.base"),
    (
        *("config", "load", "suite_plans", "presets", "plan", "costs", "decide", "hardware", "paper"),
        "schemas",
        "schemas_suites",
    ),
    ("backends", "meters", "fetch", "models", "store", "suites", "sandbox"),
    ("report", "results"),
    ("run", "doctor"),
    ("cli", "__main__"),
)
# Never import each other, so that any engine can be measured by any meter.
STRANGERS = (("backends", "meters"), ("meters", "backends"), ("suites", "backends"), ("suites", "meters"))

PURE = (
    *("errors", "record", "units", "metrics", "stats", "settings"),
    *("suite_settings", "energy_settings"),
    *("config", "suite_plans", "presets", "plan", "costs", "paper"),
    *("decide", "results", "report"),
    *(
        "suites.long_context",
        "suites.speed",
        "suites.fidelity",
        "suites.lossless",
        "suites.code_syntax.extract",
        "suites.code_syntax.score",
    ),
)
WORLD = frozenset(
    [
        *("time", "os", "pathlib", "subprocess", "socket", "urllib", "http", "requests", "httpx", "sqlite3", "signal"),
        *("threading", "multiprocessing", "asyncio", "shutil", "tempfile", "glob", "psutil", "resource", "platform"),
        *("secrets", "uuid", "llama_cpp", "torch", "transformers", "pynvml", "lm_eval", "datasets", "huggingface_hub"),
    ]
)
# One literal table; longer than a module with logic may be.
TABLES = ("metrics.catalog",)
HEAVY = "numpy scipy pandas plotly pydantic ruamel rich jinja2 lm_eval datasets torch llama_cpp pyarrow tree_sitter"


def name_of(path: Path) -> str:
    """Dotted name inside the package: 'config', 'backends.base'; '' for the package itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, anywhere in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import; write the whole name"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def own_imports(path: Path) -> Iterator[tuple[str, int]]:
    for module, line in imports(path):
        if module.startswith("harness.") and module != "harness.__version__":
            yield module.removeprefix("harness."), line


def layer_of(name: str) -> int:
    """The layer whose entry fits best; 'backends.base' before 'backends'."""
    fits = [(len(entry), level) for level, layer in enumerate(LAYERS) for entry in layer if is_in(name, entry)]
    assert fits, f"harness.{name} has no place in LAYERS; give it one"
    return max(fits)[1]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_import_from_their_layer_or_below(path):
    if not name_of(path):
        return
    own = layer_of(name_of(path))
    upward = [f"line {line}: {module}" for module, line in own_imports(path) if layer_of(module) > own]
    assert not upward


@pytest.mark.parametrize(("package", "stranger"), STRANGERS)
def test_engines_meters_and_suites_do_not_know_each_other(package, stranger):
    known = [
        f"{name_of(path)}:{line}: {module}"
        for path in MODULES
        if is_in(name_of(path), package)
        for module, line in own_imports(path)
        if is_in(module, stranger) and not is_in(module, "backends.base")
    ]
    assert not known


def pure_modules() -> list[Path]:
    return [path for path in MODULES if any(is_in(name_of(path), package) for package in PURE)]


@pytest.mark.parametrize("path", pure_modules(), ids=name_of)
def test_pure_modules_touch_nothing(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    worldly = [f"line {line}: {module}" for module, line in imports(path) if module.split(".")[0] in WORLD]
    opened = [
        f"line {node.lineno}: {node.func.id}()"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "print", "input")
    ]
    assert not worldly + opened


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_chance_is_always_seeded(path):
    """The shared generators of random and numpy.random depend on who used them before."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    shared = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) in ("random", "np.random", "numpy.random")
        and node.attr not in ("Random", "default_rng", "Generator", "SeedSequence", "PCG64")
    ]
    assert not shared


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_stay_readable(path):
    text = path.read_text(encoding="utf-8")
    long = [
        f"{node.name}: {(node.end_lineno or 0) - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
    ]
    assert not long
    assert len(text.splitlines()) <= (400 if name_of(path) in TABLES else 300)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_error_is_swallowed(path):
    silent = [
        f"line {node.lineno}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)))
    ]
    assert not silent


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_tool_that_is_started_can_wait_for_a_password(path):
    """Every child process has its standard input closed; sudo and a private package index then fail at once."""
    asking = [
        f"line {node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("subprocess.run", "subprocess.Popen", "subprocess.check_output", "os.system")
        and "subprocess.DEVNULL" not in [ast.unparse(word.value) for word in node.keywords if word.arg == "stdin"]
    ]
    assert not asking


def test_starting_up_imports_nothing_heavy():
    code = (
        "import sys, harness, harness.cli, harness.errors, harness.record\n"
        f"print(*sorted(set({HEAVY.split()!r}) & {{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert done.stdout.split() == []


def test_the_layers_name_only_what_exists_or_is_planned():
    planned = {"sandbox", "claims", "results", "models"}
    names = {name_of(path) for path in MODULES}
    gone = [entry for layer in LAYERS for entry in layer if entry not in names | planned]
    assert not gone
