"""Every public class and function has a docstring, and nobody reads words of the first version."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "mixit_titan").rglob("*.py"))
READ = [*MODULES, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
OURS = re.compile(
    r"\b(go(es)? on (from|with)|by heart|random start|flavour|colour|behaviour|labelled|modelling"
    r"|a line a step|a rank a node|not as it should be|no folder that can be)\b"
)


def undocumented(module: Path) -> list[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    public = [
        node
        for node in ast.parse(module.read_text()).body
        if isinstance(node, kinds) and not node.name.startswith("_")
    ]
    return [node.name for node in public if not ast.get_docstring(node)]


def test_every_public_class_and_function_has_a_docstring() -> None:
    found = {str(path.relative_to(ROOT)): undocumented(path) for path in MODULES}
    assert len(found) > 100 and {path: names for path, names in found.items() if names} == {}


def test_no_word_is_read_as_translated() -> None:
    found = {
        str(path.relative_to(ROOT)): words
        for path in READ
        if (words := [found[0] for found in OURS.finditer(path.read_text())])
    }
    assert found == {}
