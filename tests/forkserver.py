"""Processes that start with torch and torchtitan already imported, since importing takes longer
than most of what the tests start.

They are forked from a server that has imported modules and done nothing else, and they end as any
Python process does: what runs in one is isolated from other tests. Each leads a session, so
`os.killpg(process.pid, ...)` does what a terminal does. The server ends, and ends what it has
started, when the process that uses it is gone, however that ended.
"""

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PRELOADED = (
    "torch.distributed.run",
    "mixit_titan.cli",
    "mixit_titan.config.checks",
    "mixit_titan.demo",
    "mixit_titan.runtime.train",
)
_NUMBER = struct.Struct("q")
_SECONDS_TO_END = 10


def _readable(descriptors: list[int], timeout: float | None = None) -> list[int]:
    """Use poll: a test that has opened a thousand files has descriptors that select cannot
    handle."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(timeout and 1000 * timeout)]


class Process:
    """A forked process with the parts of subprocess.Popen that the tests need. Leaving it as a
    context kills it and what it has started."""

    def __init__(self, status: int, output: Any) -> None:
        self._status, self._output = status, output
        self.returncode: int | None = None
        self.pid = self._read()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            if not _readable([self._status], timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout, self.output())
            self.returncode = self._read()
        return self.returncode

    def output(self, errors: str = "strict") -> str:
        """Return what it has printed so far, on both streams."""
        self._output.seek(0)
        return self._output.read().decode(errors=errors)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(_SECONDS_TO_END)
        os.close(self._status)
        self._output.close()

    def _read(self) -> int:
        found = os.read(self._status, _NUMBER.size)
        assert found, "the forkserver is gone"
        return _NUMBER.unpack(found)[0]


class Forkserver:
    """Starts the server, and asks it for processes."""

    def __init__(self, preloaded: Sequence[str] = PRELOADED) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno()), *preloaded],
                # Asking whether there is a GPU must leave CUDA untouched, or no fork could use it.
                env=os.environ | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def start(
        self, function: Callable, *arguments: Any, environment: dict[str, str] | None = None
    ) -> Process:
        """Start a process that calls `function`, in the environment and the folder of this one."""
        place = (dict(os.environ if environment is None else environment), os.getcwd())
        output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed by Process)
        status, theirs = os.pipe()
        # In a file, since a socket message holds 200 kB at most and an argument can be longer.
        with tempfile.TemporaryFile(buffering=0) as request:
            request.write(pickle.dumps((place, pickle.dumps((function, arguments)))))
            sent = [output.fileno(), theirs, request.fileno()]
            socket.send_fds(self._connection, [b"call"], sent)
        os.close(theirs)
        return Process(status, output)

    def run_ranks(
        self, ranks: int, groups: int, function: Callable, *arguments: Any, timeout: float = 600
    ) -> None:
        """Call `function(ports, ...)` in `ranks` processes, as torchrun would start them.

        Each process group needs its own store: there are `groups` of them, one at each port.
        """
        from torch.distributed import TCPStore

        # Made here: only a store that binds port 0 itself gets a port that nobody else can have.
        stores = [TCPStore("localhost", 0, is_master=True) for _ in range(groups)]
        ports = [store.port for store in stores]
        shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost"}
        shared |= {"MASTER_PORT": str(ports[0]), "TORCHELASTIC_USE_AGENT_STORE": "True"}
        deadline = time.monotonic() + timeout
        with contextlib.ExitStack() as stack:
            started = []
            for rank in range(ranks):
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                environment = os.environ | shared | own
                process = self.start(function, ports, *arguments, environment=environment)
                started.append(stack.enter_context(process))
            for rank, process in enumerate(_as_they_end(started, deadline)):
                assert process.returncode == 0, f"{rank} others had ended\n" + process.output()

    def close(self) -> None:
        self._connection.close()
        self._server.wait()


def _as_they_end(processes: list[Process], deadline: float) -> Iterator[Process]:
    """Yield processes as they end, so that a failed one is not waited for behind one that waits for
    it."""
    left = {process._status: process for process in processes}
    while left:
        for status in _readable([*left], max(0, deadline - time.monotonic())):
            process = left.pop(status)
            process.poll()
            yield process
        assert time.monotonic() < deadline, "".join(p.output() for p in left.values())


def mixit_titan(*words: str) -> None:
    """Run the command, for `Forkserver.start`."""
    from mixit_titan.cli import main

    sys.argv = ["mixit-titan", *words]
    main()


def _serve(connection: socket.socket) -> bytes | None:
    """Fork at each request. Returns in each forked process with what is to be called, and in the
    server with None when its user is gone."""
    running: dict[int, int] = {}  # process -> where its exit code is awaited
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready = _readable([connection.fileno(), woken])
        if woken in ready:
            os.read(woken, 4096)
            _reap(running)
        if connection.fileno() not in ready:
            continue
        message, descriptors, *_ = socket.recv_fds(connection, 16, 3)
        if not message:
            _end(running)
            return None
        output, status, request = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for descriptor in (woken, wake, *running.values()):
                os.close(descriptor)
            connection.close()
            return _begin(request, output, status)
        running[pid] = status
        os.close(output)
        os.close(request)


def _begin(request: int, output: int, status: int) -> bytes:
    """Turn a fork into a process like one that a terminal has started."""
    os.setsid()
    os.write(status, _NUMBER.pack(os.getpid()))  # from now on it can be signaled as a group
    os.close(status)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a script's background
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    with open(request, "rb") as file:
        file.seek(0)
        (environment, folder), call = pickle.load(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return call


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, code = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        status = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(code)))
        os.close(status)


def _end(running: dict[int, int]) -> None:
    deadline = time.monotonic() + _SECONDS_TO_END
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in running:
            for kill in (os.killpg, os.kill):  # it may not be a group yet
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, number)
        while running and time.monotonic() < deadline:
            time.sleep(0.05)
            _reap(running)


if __name__ == "__main__":
    gc.disable()  # all of it stays
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # otherwise every fork would scan all of it before it ends
    gc.enable()
    call = _serve(socket.socket(fileno=int(sys.argv[1])))
    if call is not None:
        function, arguments = pickle.loads(call)
        function(*arguments)
