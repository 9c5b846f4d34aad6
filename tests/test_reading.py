"""Files of the wrong kind, size and form: refused in one sentence, and never waited for."""

import ast
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import mixit_titan
from mixit_titan.json_form import COUNT, NUMBER, WrongForm, parse_json
from mixit_titan.reading import (
    WrongFile,
    check_kinds,
    json_if_good,
    read_bytes,
    read_end,
    read_json,
    read_json_lines,
    read_text,
    regular,
    set_aside,
)

FORM = {
    "name": str,
    "count": COUNT,
    "loss?": NUMBER,
    "seconds?": float,
    "rows?": [{"id": int}],
    "either?": (bool, None),
    "settings?": {"a": str, "*": float},
}


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "": "it is empty",
        " \n": "it is empty",
        "{": "it is not JSON",
        "[]": "it is a list, and not an object",
        "3": "it is 3, and not an object",
        "null": "it is None, and not an object",
        '{"name": "a"}': "there is no count",
        '{"name": 3, "count": 1}': "name is 3, and not text",
        '{"name": "a", "count": -1}': "count is -1, and not a non-negative integer",
        '{"name": "a", "count": true}': "count is True, and not",
        '{"name": "a", "count": 1.0}': "count is 1.0, and not",
        '{"name": "a", "count": 99999999999999999999}': "count is 9+, and not",
        '{"name": "a", "count": 1, "loss": "low"}': "loss is 'low', and not a number",
        '{"name": "a", "count": 1, "seconds": NaN}': "seconds is nan, and not a finite number",
        '{"name": "a", "count": 1, "seconds": 1e999}': "seconds is inf, and not a finite number",
        '{"name": "a", "count": 1, "rows": {}}': "rows is an object, and not a list",
        '{"name": "a", "count": 1, "rows": [{"id": 1}, {}]}': r"there is no rows\[1\].id",
        '{"name": "a", "count": 1, "rows": [{"id": 1.5}]}': r"rows\[0\].id is 1.5, and not an",
        '{"name": "a", "count": 1, "either": 1}': "either is 1, and not true or false or null",
        '{"name": "a", "count": 1, "settings": {"a": "", "b": []}}': "settings.b is a list, and",
        '{"name": "\\ud800", "count": 1}': "it is not UTF-8: surrogates not allowed",
        "[" * 100_000: "it is nested too deeply",
        '{"name": "a", "count": 1, "more": ' + "[" * 70 + "]" * 70 + "}": "nested too deeply",
        '{"name": "a", "count": ' + "9" * 5000 + "}": "it is not JSON",
    }.items(),
)
def test_what_is_not_in_the_declared_form_is_named(text: str, message: str) -> None:
    with pytest.raises(WrongForm, match=message):
        parse_json(text.encode(), FORM)


def test_what_is_in_the_declared_form_is_read() -> None:
    text = '{"name": "a", "count": 1, "loss": NaN, "either": null, "rows": [], "more": [[1]]}'
    found = parse_json(b"\xef\xbb\xbf" + text.encode(), FORM)  # as some editors begin a text
    assert found.pop("loss") != found
    assert found == {"name": "a", "count": 1, "either": None, "rows": [], "more": [[1]]}
    with pytest.raises(WrongForm, match="not UTF-8"):
        parse_json(b'{"name": "\xff", "count": 1}', FORM)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # which takes no room


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Path.mkdir, "it is a folder"),
        (make_pipe, "it is a named pipe"),
        (make_socket, "it is a pipe or a socket"),
        (make_loop, "[Tt]oo many levels of symbolic links"),
        (make_huge, "it is larger than 67,108,864 bytes"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "it is not UTF-8"),
    ],
)
def test_what_is_no_small_text_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], object], problem: str
) -> None:
    path = tmp_path / "x.json"
    make(path)
    with pytest.raises(WrongFile, match=rf"x.json cannot be used \({problem}.*\): do this$"):
        read_text(path, advice="do this")
    assert json_if_good(path, dict) is None
    assert len(read_end(path)) in (0, 2, 2**16)


@pytest.mark.parametrize("make", [Path.mkdir, make_pipe, make_socket])
def test_nothing_is_written_to_what_is_no_file(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "x")
    with pytest.raises(WrongFile), open(tmp_path / "x", "a", opener=regular):
        pass
    with pytest.raises(WrongFile, match="and not a file"):
        check_kinds(tmp_path, files=("x", "absent"))
    (tmp_path / "y").write_text("")
    with pytest.raises(WrongFile, match="it is a file, and not a folder"):
        check_kinds(tmp_path, files=(), folders=("y", "absent"))


def test_a_pipe_that_somebody_writes_to_is_refused_too(tmp_path: Path) -> None:
    make_pipe(tmp_path / "x")
    writer = threading.Thread(target=lambda: (tmp_path / "x").open("w").close())
    writer.start()
    end = os.open(tmp_path / "x", os.O_RDONLY)  # lets the writer go
    with pytest.raises(WrongFile, match="a named pipe"):
        read_bytes(tmp_path / "x")
    os.close(end)
    writer.join()


def test_what_is_not_there_is_no_wrong_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent", tmp_path / "file" / "below"):
        with pytest.raises(FileNotFoundError):
            read_json(path, dict)
        assert read_json_lines(path, dict) == []
    with pytest.raises(WrongFile, match="embedded null byte"):
        read_bytes("a\0b")


@pytest.mark.parametrize(
    "end", [b"", b'{"n": 3', b"[3]\n", b"{}\n", b"\xff\n", b"\n", b"[" * 10**6, bytes(10**6)]
)
def test_lines_are_read_up_to_a_broken_one(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"n": 1}\n{"n": 2}\n' + end + b'\n{"n": 4}\n' * bool(end))
    assert read_json_lines(path, {"n": int}) == [{"n": 1}, {"n": 2}]


def test_what_is_set_aside_replaces_nothing(tmp_path: Path) -> None:
    names = []
    for text in "abc":
        (tmp_path / "x").write_text(text)
        names.append(set_aside(tmp_path / "x"))
    assert [path.name for path in names] == ["x.broken", "x.broken-2", "x.broken-3"]
    assert [path.read_text() for path in names] == ["a", "b", "c"]


OWN = ("command", "doctor", "process", "throughput")
"""Of gpu_check: what a process that it started has just written."""


def test_nothing_is_unpickled_but_by_the_restricted_readers() -> None:
    """All that torch loads it loads with weights_only, in the two files that check what they read;
    the one unpickler knows a few classes; NumPy loads nothing. JSON that others may have written is
    read in a declared form."""
    found = set()
    package = Path(mixit_titan.__file__).parent
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called.endswith((".load", ".loads", "Unpickler")) and called != "tl.load":
                keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
                name = file.relative_to(package).as_posix()
                found.add((name, called, keywords.get("weights_only"), keywords.get("planner")))
    assert found == {
        ("config/toml.py", "tomli.loads", None, None),
        ("data/readers.py", "json.loads", None, None),  # a line of a corpus, with its own errors
        ("data/token_bytes.py", "json.loads", None, None),  # what a library in memory says
        ("data/fast_encoder.py", "json.loads", None, None),  # the same
        ("export/modeling_mixit.py", "json.loads", None, None),  # goes with an exported model
        *((f"gpu_check/{name}.py", "json.loads", None, None) for name in OWN),
        ("bench/profile.py", "json.loads", None, None),  # what it has just written itself
        ("bench/ranks.py", "json.loads", None, None),  # what a process of its own has just written
        ("json_form.py", "json.loads", None, None),
        ("runtime/watch.py", "json.loads", None, None),  # its own command line
        ("config/checks.py", "sections.eval.load", None, None),  # tasks of lm-eval, as those below
        ("evaluation/tasks.py", "manager.load", None, None),
        ("evaluation/tasks.py", "TaskManager(include_defaults=False).load", None, None),
        ("runtime/llama_start.py", "dcp.load", None, "PlainPlanner()"),
        ("runtime/tensor_reader.py", "dcp.load", None, "PlainPlanner()"),
        ("runtime/tensor_reader.py", "torch.load", "True", None),
        ("runtime/metadata_pickle.py", "_MetadataUnpickler", None, None),
        ("runtime/metadata_pickle.py", "_MetadataUnpickler(io.BytesIO(content)).load", None, None),
        ("tasks/checkpoint.py", "torch.load", "True", None),
    }
