"""A real Slurm on this machine: one controller, some nodes, each node a slurmd in its own UTS and
mount namespaces, so that `hostname` and name resolution inside a job are those of a node.

Needs root, and the packages of `make test-slurm`.
"""

import contextlib
import os
import random
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

NODES = ("node1", "node2", "node3")
GPUS = 8  # invented: they make `--gpus-per-node 8` acceptable, nothing runs on them

_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
ReturnToService=1
JobRequeue=1
FirstJobId={first}
MinJobAge=3600
SlurmdTimeout=300
MessageTimeout=20
KillWait=40
UnkillableStepTimeout=60
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        for name in ("munge", "state", *NODES):
            (folder / name).mkdir(mode=0o755)
        (folder / "munge").chmod(0o700)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self._write_conf()
        # What a job would inherit from a cluster that the tests themselves run on.
        foreign = re.compile(r"SLURM_|SBATCH_|SRUN_|SQUEUE_|SCANCEL_")
        self.environment = {k: v for k, v in os.environ.items() if not foreign.match(k)}
        self.environment["SLURM_CONF"] = str(self.conf)

    def start(self) -> None:
        munge = self.folder / "munge"
        files = [f"--{what}-file={munge}/{what}" for what in ("key", "pid", "seed", "log")]
        self.run("munged", "--force", f"--socket={self.folder}/munge.socket", *files)
        self.run("slurmctld", "-i", "-c")
        for node in NODES:
            self._boot(node)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Slurm drains a node where it could not kill all processes of a step within its time, as
        happens now and then without cgroups: it is taken back."""

        def idle() -> bool:
            shown = self.run("sinfo", "-h", "-N", "-p", "all", "-o", "%N %T").splitlines()
            for node, state in map(str.split, shown):
                if state == "drained":
                    self.run("scontrol", "update", f"nodename={node}", "state=resume")
            return set(shown) == {f"{node} idle" for node in NODES}

        wait_for(idle, 120, every=0.3)

    def stop(self) -> None:
        """By the processes' own numbers; some may never have started."""
        for node in NODES:
            self._kill_node(node)
        for file in (self.folder / "slurmctld.pid", self.folder / "munge" / "pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def power_on(self, node: str) -> None:
        self._boot(node)
        self.run("scontrol", "update", f"nodename={node}", "state=resume")

    def power_off(self, node: str) -> None:
        """All processes of the node are gone at once, and Slurm has noticed. It stays down,
        whatever answers of it are still under way."""
        self._kill_node(node)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def processes(self, node: str) -> dict[int, str]:
        """Those of one node, with their command lines."""
        return {
            pid: words for pid, words in self.all_processes().items() if self._node(pid) == node
        }

    def all_processes(self) -> dict[int, str]:
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except (OSError, UnicodeDecodeError):
                continue
            if entry.name.isdecimal() and words:
                found[int(entry.name)] = words
        return found

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` says."""
        shown = self.run("scontrol", "-o", "show", "job", number)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def wait(self, number: str, timeout: float = 900) -> str:
        """The state in which the job has left the queue."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_for(lambda: self.job(number)["JobState"] in ended, timeout, every=0.5)
        return self.job(number)["JobState"]

    def _boot(self, node: str) -> None:
        inside = f"hostname {node} && mount --bind {self.folder}/hosts /etc/hosts && exec slurmd -N"
        self.run("unshare", "--uts", "--mount", "sh", "-c", f"{inside} {node}")

    def _kill_node(self, node: str) -> None:
        for pid in self.processes(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _node(self, pid: int) -> str | None:
        """A node's processes see its bound hosts file among their mounts, and its hostname."""
        try:
            mounts = Path(f"/proc/{pid}/mounts").read_text()
            if str(self.folder) not in mounts and "/etc/hosts" not in mounts:
                return None
            return self._names.get(os.readlink(f"/proc/{pid}/ns/uts"))
        except OSError:
            return None

    @property
    def _names(self) -> dict[str, str]:
        names = {}
        for node in NODES:
            file = self.folder / f"{node}.pid"
            try:
                names[os.readlink(f"/proc/{int(file.read_text())}/ns/uts")] = node
            except (OSError, ValueError):
                continue
        return names

    def _write_conf(self) -> None:
        host = socket.gethostname().split(".")[0]
        ports = _free_ports(len(NODES) + 1)
        # Jobs take their port from their number: those of another such cluster take others.
        first = random.randrange(1, 2**20)
        lines = [_CONF.format(host=host, port=ports[0], folder=self.folder, first=first)]
        hosts = [f"127.0.0.1 localhost {host}"]
        for number, node in enumerate(NODES, start=1):
            hosts.append(f"127.0.1.{number} {node}")
            lines.append(
                f"NodeName={node} NodeHostname={node} NodeAddr=127.0.1.{number} "
                f"Port={ports[number]} Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 "
                f"RealMemory=4000 Gres=gpu:{GPUS} State=UNKNOWN"
            )
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60")
        lines.append("PartitionName=small Nodes=ALL MaxNodes=1 MaxTime=60")
        self.conf.write_text("\n".join(lines) + "\n")
        for number in range(GPUS):  # Slurm wants character devices: copies of /dev/null
            os.mknod(self.folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (self.folder / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={','.join(NODES)} Name=gpu "
            f"File={self.folder}/gpu[0-{GPUS - 1}]\n"
        )
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")


def wait_for(holds: Callable[[], object], timeout: float = 900, *, every: float = 0.05) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain"
        time.sleep(every)


def _free_ports(number: int) -> list[int]:
    """Below those that the system gives to connections, and below those of the jobs."""
    free = []
    for port in random.sample(range(11000, 19000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            free.append(port)
    return free[:number]
