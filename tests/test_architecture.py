"""Who may import whom (docs/architecture.md): only what is below, and never in a circle."""

import ast
import importlib
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import tomli

import mixit_titan

PACKAGE = Path(mixit_titan.__file__).parent
# From below to above; those of one line do not import each other.
LAYERS = [
    ["__init__", "errors", "gpus", "imports", "json_form", "log", "parent"],
    ["files", "reading", "hashing", "tables", "device", "ranges", "host_memory", "intervals"],
    ["plotting", "versions", "kernels", "jobs", "fields"],
    ["help"],
    ["options"],
    ["model", "data"],
    ["runtime", "mixing"],
    ["generation"],
    ["evaluation"],
    ["tasks", "config"],
    [
        "export",
        "analysis",
        "bench",
        "slurm",
        "doctor",
        "params",
        "comparison",
        "suite",
    ],
    ["reproduction", "demo", "drill", "gpu_check", "ladder"],
    ["cli", "config_registry"],
    ["reference", "__main__"],
]
OUTSIDE = {"__init__", "__main__"}
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def modules() -> dict[str, Path]:
    """`model.llama` -> its file."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts)] = file
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """What a module imports of the package, anywhere in it; not what is for type checkers only."""
    skipped = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or node.module == "modeling_mixit", "a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph() -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports."""
    known = modules()
    edges = {}
    for name, file in known.items():
        names = {n.removeprefix("mixit_titan.") for n in imported(ast.parse(file.read_text()))}
        edges[name] = {n for n in names if n in known and n != name}
    return edges


def test_every_package_has_its_layer() -> None:
    assert {name.split(".")[0] for name in modules()} == set(RANK)


def test_every_package_is_installed() -> None:
    """An editable install would not notice."""
    listed = tomli.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {file.relative_to(PACKAGE.parent).parent for file in PACKAGE.rglob("*.py")}
    beside = set(listed["package-dir"])
    assert {".".join(folder.parts) for folder in folders} == set(listed["packages"]) - beside


def test_the_page_shows_the_layers() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    shown = re.search(r"\n\n((?:    +[\w ]+\n)+)\n", page)[1]
    rows = [row.split() for row in reversed(shown.splitlines())]
    assert [sorted(row) for row in rows] == [sorted(set(row) - OUTSIDE) for row in LAYERS[:-1]]


def test_the_docs_import_what_is_there() -> None:
    for page in [PACKAGE.parent / "README.md", *(PACKAGE.parent / "docs").glob("*.md")]:
        for line in re.findall(r"^ +from mixit_titan\S* import .*$", page.read_text(), re.M):
            module, names = re.fullmatch(r" +from (\S+) import ([\w, ]+).*", line).groups()
            for name in names.split(","):
                assert hasattr(importlib.import_module(module), name.strip()), (page.name, line)


def test_imports_go_downwards_only() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        if name.split(".")[0] != other.split(".")[0]
        and RANK[name.split(".")[0]] <= RANK[other.split(".")[0]]
    ]
    assert not wrong


def test_no_circle() -> None:
    edges = graph()
    order = list(TopologicalSorter(edges).static_order())  # raises CycleError
    assert set(order) == set(edges)
    assert sum(map(len, edges.values())) > 400  # it has seen the imports


def test_help_needs_no_torch() -> None:
    """What cli imports when it is imported, and all that comes with it."""
    edges, known, seen, waiting = graph(), modules(), set(), ["cli", "params"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        top = ast.Module(
            [n for n in ast.parse(known[name].read_text()).body if _is_import(n)], type_ignores=[]
        )
        names = {n.removeprefix("mixit_titan.") for n in imported(top)}
        assert not {n for n in names if n.split(".")[0] in ("torch", "torchtitan", "numpy")}, name
        waiting += [n for n in edges[name] & names if n not in seen]


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)
