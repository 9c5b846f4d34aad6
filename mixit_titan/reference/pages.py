"""The pages of docs/reference, by their names."""

from collections.abc import Callable

from mixit_titan.reference.commands import commands_reference
from mixit_titan.reference.config import config_reference

PAGES: dict[str, Callable[[], str]] = {
    "config.md": config_reference,
    "commands.md": commands_reference,
}
