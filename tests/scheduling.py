"""Which worker gets which tests, and in which order."""

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# What takes longest begins first, so that no worker is left alone with it.
FIRST = (
    "tests/slurm",
    "tests/drill/test_command.py",
    "tests/gpu_check/test_command.py",
    "tests/fuzz",
    "tests/test_docs_run.py",
    "tests/kernels/test_triton.py",
    "tests/test_kills.py",
    "tests/runtime/test_stopping.py",
    "tests/test_cli.py",
    "tests/runtime",
    "tests/reproduction",
    "tests/bench",
)
# Each test can go to another worker. Of other modules, all go to one, which makes their fixtures.
APART = ("tests/runtime/test_training.py", "tests/test_cli.py", "tests/test_docs_run.py")
# One worker has the session's fixtures of such a folder, for all of its modules.
TOGETHER = ("tests/reproduction", "tests/slurm")


def place(nodeid: str) -> list[bool]:
    """Sorts tests by when they begin."""
    return [not nodeid.startswith(start) for start in FIRST]


class Scheduler(LoadScopeScheduling):
    """Not xdist's own groups, which do nothing from pytest 9.2 on (pytest-xdist#1386)."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        if module in APART:
            return nodeid
        for folder in TOGETHER:
            if module.startswith(f"{folder}/"):
                return folder
        return module

    def remove_node(self, node: "WorkerController") -> str | None:
        """The test in which a worker died has failed, and the others of its unit go to the worker
        that replaces it. xdist would try that test again and hand out units of which nothing is
        left: no worker reports their end, and the session waits for ever."""
        units = self.assigned_work.pop(node)
        left = [(unit, test) for unit, tests in units.items() for test in tests if not tests[test]]
        if not left:
            return None
        unit, died_in = left[0]
        units[unit][died_in] = True
        for unit in reversed({unit: None for unit, test in left if test != died_in}):
            self.workqueue[unit] = units[unit]
            self.workqueue.move_to_end(unit, last=False)
        return died_in

    def schedule(self) -> None:
        """A worker begins a test when it knows what comes after it: also one that came later must
        have a second unit, or hear that there is none."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)
