"""docs/first_gpu_hour.md names tests: they exist, in the files that it names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first_gpu_hour.md"
UNNAMED = "tests/test_gpus.py"  # of the page's second table


def test_every_named_test_exists() -> None:
    found = 0
    for row in PAGE.read_text().splitlines():
        if not row.startswith("|"):
            continue
        file = UNNAMED
        for path, name in re.findall(r"`(tests/\S+\.py)`|`(test_\w+)`", row.split("|")[-2]):
            if path:
                file = path
                assert (ROOT / file).is_file(), file
            else:
                assert f"def {name}(" in (ROOT / file).read_text(), (file, name)
                found += 1
    assert found > 20
