"""A local server that offers datasets as the hub does, well or badly."""

import contextlib
import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

REVISION = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Datasets below a folder, `OWNER/NAME/...`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.revisions = [REVISION]
        """The last one is the newest."""
        self.troubles: dict[str, list[str]] = {}
        """File -> what is wrong with the next answers that have it; then they are right."""
        self.asked: list[tuple[str, int]] = []
        """Files that were asked for, and from which byte on."""
        self.ranges = True
        """Whether it can send a part of a file."""
        self.checksums = True
        """Whether it says the checksum of a file, as the hub does of large ones."""
        self.gate: threading.Barrier | None = None
        """As many as are asked for at once must be, before any is answered for the first time."""
        self.address = ""

    def paths(self) -> list[str]:
        """The files that were asked for."""
        return [name for name, _ in self.asked]

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        class Bound(Handler):
            hub = self

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        server.daemon_threads = True
        self.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        server.shutdown()
        server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "datasets"]:
            revision = parts[5] if len(parts) > 5 else self.hub.revisions[-1]
            self.dataset("/".join(parts[2:4]), revision)
        else:
            self.file("/".join(parts[1:3]), "/".join(parts[5:]), parts[4])

    do_HEAD = do_GET

    def dataset(self, repo: str, revision: str) -> None:
        top = self.hub.root / repo
        names = [{"rfilename": p.relative_to(top).as_posix()} for p in top.rglob("*.*")]
        self.answer(200, json.dumps({"id": repo, "sha": revision, "siblings": names}).encode())

    def file(self, repo: str, name: str, revision: str) -> None:
        path = self.hub.root / repo / name
        if not path.is_file():
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        body = path.read_bytes()
        checksum = hashlib.sha256(body).hexdigest() if self.hub.checksums else path.name
        about = {"X-Repo-Commit": revision, "ETag": f'"{checksum}"'}
        if self.command == "HEAD":
            self.answer(200, body, about)
            return
        start = self.start() if self.hub.ranges else 0
        self.hub.asked.append((name, self.start()))
        if self.hub.gate is not None and len(self.hub.asked) <= self.hub.gate.parties:
            self.hub.gate.wait(10)
        troubles = self.hub.troubles.get(name, [])
        self.troubled(troubles.pop(0) if troubles else "", body, start, about)

    def start(self) -> int:
        """The byte from which on the file is asked for."""
        return int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])

    def troubled(self, trouble: str, body: bytes, start: int, about: dict[str, str]) -> None:
        status = 206 if start else 200
        if start:
            about["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        rest = body[start:]
        if trouble.isdigit():
            self.answer(int(trouble), b"no", {})
        elif trouble in ("closed", "stalled", "slow"):
            self.head(status, len(rest), about)
            self.wfile.write(rest[: len(rest) // 2])
            self.wfile.flush()
            if trouble == "slow":
                time.sleep(0.3)
                self.wfile.write(rest[len(rest) // 2 :])
            if trouble == "stalled":
                time.sleep(1.5)
            self.close_connection = True
        elif trouble == "short":  # and it says so, as if that were all
            self.answer(status, rest[:-100], about)
        elif trouble == "long":
            self.answer(status, rest + b"more", about)
        elif trouble == "wrong":  # of the right length
            self.answer(status, rest[:10] + b"x" * (len(rest) - 10), about)
        else:
            assert not trouble
            self.answer(status, rest, about)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.head(status, len(body), headers or {})
        if self.command == "GET":
            self.wfile.write(body)

    def head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
