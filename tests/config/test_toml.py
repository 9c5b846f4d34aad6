"""Config files as editors, disks and strangers leave them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mixit_titan.config.toml import read_toml
from mixit_titan.errors import ConfigError


def test_a_byte_order_mark_before_the_first_key_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbf[model]\r\nwidth = 8\r\n")
    assert read_toml(str(file)) == {"model": {"width": 8}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, r"run.toml cannot be used \(it is a named pipe\): name a TOML file"),
        (os.mkdir, r"run.toml cannot be used \(it is a folder\): name a TOML file"),
        (lambda file: file.write_bytes(b"a = '\xff'"), "it is not UTF-8: invalid start byte"),
        (lambda file: file.write_bytes(b"a = '\0'"), "is not valid TOML"),
        (lambda file: file.write_text("a = " + "[" * 10**5), "nested too deeply"),
        (lambda file: file.write_text("a = " + "9" * 5000), "is not valid TOML"),
        (lambda file: file.open("wb").truncate(2**40), "it is larger than 1,048,576 bytes"),
        (lambda file: file.symlink_to(file), "[Tt]oo many levels of symbolic links"),
        (lambda file: None, r"there is no config file '.*run.toml'"),
    ],
)
def test_what_is_no_config_is_one_sentence(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "run.toml")
    with pytest.raises(ConfigError, match=message) as error:
        read_toml(str(tmp_path / "run.toml"))
    assert "\n" not in str(error.value)
