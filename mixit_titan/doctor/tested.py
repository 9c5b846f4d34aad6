"""The versions that the tests ran with, available even where constraints.txt is not."""

TESTED = {
    "torch": "2.13.0",
    "torchtitan": "0.3.0",
    "triton": "3.7.1",
    "torchdata": "0.11.0",
    "tiktoken": "0.14.0",
    "transformers": "5.22.2",
}
"""The versions in constraints.txt."""

OLDEST_PYTHON = (3, 11)
"""The requires-python of pyproject.toml."""
