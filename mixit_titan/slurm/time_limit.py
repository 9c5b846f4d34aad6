"""Slurm's way to write a duration."""

import re

from mixit_titan.errors import ConfigError


def seconds(text: str) -> float:
    """`90` minutes, `1:30:00`, `2-12` days and hours, `2-12:30:00`, `UNLIMITED`."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return float("inf")
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        raise ConfigError(f"--time is {text!r}: write HH:MM:SS, or DAYS-HH:MM:SS")
    days, _, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # Alone, the numbers are minutes and seconds; after days, hours and minutes.
    if len(parts) < 3:
        parts = [*parts, 0, 0][:3] if days else [0, *parts, 0][:3]
    hours, minutes, secs = parts
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs
