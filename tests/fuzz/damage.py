"""Damage to a file: what a disk, an editor, another program or a stranger may have done to it."""

import hashlib
import io
import json
import os
import pickle
import random
import socket
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.attempt import CANARY

_DEEP = 100_000
_HUGE = 2**36
_STRANGE: list[Any] = [
    *(None, True, -1, 0, 3, 10**25, 1e308, float("nan"), float("inf"), "", "x", "\0", "\ud800"),
    *("../../x", "[bold]", "\x1b[2J", [], [1], {}, {"a": [{}]}, [[[[[[]]]]]], "9" * 5000),
]


class Stranger:
    """Code in a pickle: it would leave a file behind."""

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {CANARY}",)


def damage(path: Path, draw: random.Random) -> str:
    """Do something to the file; returns what."""
    kinds = [*_ANY, *(_JSON if path.suffix in (".json", ".jsonl") else [])]
    kinds += _TORCH if path.suffix == ".pt" else []
    kind = draw.choice(kinds)
    kind(path, draw)
    return kind.__name__.strip("_")


def _replace(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 3, 20))):
        if content:
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    _replace(path, bytes(content))


def _cut(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    _replace(path, content[: draw.randrange(len(content) + 1)])


def _insert(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    place = draw.randrange(len(content) + 1)
    _replace(path, content[:place] + draw.randbytes(draw.choice((1, 8, 999))) + content[place:])


def _other_text(path: Path, draw: random.Random) -> None:
    texts = ["", "\n", "[]", "{}", "3", "null", '"x"', "NaN", "[" * _DEEP, '{"a":' * _DEEP]
    texts += ["a = " + "[" * _DEEP, "\0" * 99, "\ufeff", "x = 1\n", "9" * 5000, "{}\n[]\n"]
    _replace(path, draw.choice(texts).encode())


def _other_bytes(path: Path, draw: random.Random) -> None:
    _replace(path, draw.choice((b"\xff\xfe\0", bytes(range(256)), draw.randbytes(5000))))


def _stranger(path: Path, draw: random.Random) -> None:
    _replace(path, pickle.dumps(Stranger()))


def _no_file(path: Path, draw: random.Random) -> None:
    path.unlink()
    others = [os.mkfifo, Path.mkdir, _loop, _dangling, _zeros, _socket, _nothing]
    # A text of very many zeros is a text, and takes its time.
    draw.choice(others if path.suffix == ".txt" else [*others, _huge])(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _dangling(path: Path) -> None:
    path.symlink_to("not there")


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # its path may be longer than a socket's can be
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.chdir(before)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(_HUGE)


def _nothing(path: Path) -> None:
    pass


def _change_json(path: Path, draw: random.Random) -> None:
    """Drop a key, or give one another value, at any depth."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = draw.randrange(len(lines))
    value = json.loads(lines[number])
    for _ in range(draw.choice((1, 1, 2))):
        places = list(_places(value))
        if not places:
            break
        inside, key = draw.choice(places)
        if draw.random() < 0.3:
            del inside[key]
        else:
            inside[key] = draw.choice(_STRANGE)
    lines[number] = json.dumps(value)
    _replace(path, "\n".join([*lines, ""]).encode())


def _places(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict | list):
        return []
    keys = [*value] if isinstance(value, dict) else [*range(len(value))]
    return [(value, key) for key in keys] + [p for key in keys for p in _places(value[key])]


def _change_pickle(path: Path, draw: random.Random) -> None:
    """Flip, or a stranger's, in the archive of torch.save, with the right checksums."""
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice([name for name in records if name.endswith("data.pkl")] * 3 + [*records])
    content = bytearray(records[name])
    for _ in range(draw.choice((1, 2, 9))):
        if content:
            content[draw.randrange(len(content))] = draw.randrange(256)
    records[name] = draw.choice((bytes(content), bytes(content), pickle.dumps(Stranger())))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", draw.choice((0, 0, zipfile.ZIP_DEFLATED))) as archive:
        for each, content in records.items():
            archive.writestr(each, content)
    _replace(path, packed.getvalue())


_ANY: list[Callable[[Path, random.Random], None]] = [
    *(_flip, _flip, _cut, _insert, _other_text, _other_bytes, _no_file, _no_file, _stranger),
]
_JSON, _TORCH = [_change_json] * 6, [_change_pickle] * 6


def seal_metadata(checkpoint: Path) -> None:
    """The checksum of a checkpoint's metadata, as it is now."""
    content = (checkpoint / ".metadata").read_bytes()
    said = {".metadata": f"{zlib.crc32(content):08x}"}
    (checkpoint / "checksums.json").write_text(json.dumps(said))


def seal_shards(data: Path) -> None:
    """The checksums of token shards, as they are now."""
    manifest = json.loads((data / "manifest.json").read_text())
    for split in manifest["splits"].values():
        for shard in split["shards"]:
            for ending in shard["sha256"]:
                content = (data / f"{shard['name']}.{ending}").read_bytes()
                shard["sha256"][ending] = hashlib.sha256(content).hexdigest()
    (data / "manifest.json").write_text(json.dumps(manifest))
