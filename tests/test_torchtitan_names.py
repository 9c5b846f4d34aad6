"""What this project imports from torchtitan, as docs/torchtitan.md lists it. After a change,
`python -m tests.test_torchtitan_names` rewrites the list."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import mixit_titan

PACKAGE = Path(mixit_titan.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "torchtitan.md"
HEADING = "## What we import"


def imports() -> dict[str, dict[str, set[str]]]:
    """Module of torchtitan -> name in it -> our files that import it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                mine = [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                mine = [(node.module or "", alias.name) for alias in node.names]
            else:
                continue
            for module, name in mine:
                if module.split(".")[0] == "torchtitan":
                    found[module][name].add(str(file.relative_to(PACKAGE)))
    return found


def section() -> str:
    found = imports()
    names = sum(len(module) for module in found.values())
    files = {file for module in found.values() for users in module.values() for file in users}
    lines = [HEADING, f"{names} names of {len(found)} modules, in {len(files)} files.", ""]
    lines += ["| module of torchtitan | names | files |", "|---|---|---|"]
    for module, users in sorted(found.items()):
        said = ", ".join(f"`{name}`" for name in sorted(users))
        where = ", ".join(sorted(set().union(*users.values())))
        lines.append(f"| `{module.removeprefix('torchtitan.')}` | {said} | {where} |")
    return "\n".join(lines) + "\n"


def listed() -> str:
    """The section of the page, up to the next heading."""
    return re.search(rf"{HEADING}\n.*?(?=\n## |\Z)", PAGE.read_text(), re.DOTALL)[0]


def test_the_page_lists_what_is_imported() -> None:
    assert listed().strip() == section().strip()


def test_private_names_are_on_the_page() -> None:
    """Of what we import: those that nobody promised to keep."""
    rest = PAGE.read_text().replace(listed(), "")
    private = {name for module in imports().values() for name in module if name.startswith("_")}
    assert private and all(f"`{name}`" in rest for name in private)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().replace(listed(), section()))
