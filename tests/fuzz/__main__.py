"""python -m tests.fuzz --count 10000 --seed 0: bad inputs for all commands, and how they ended."""

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from pathlib import Path

import tests.conftest  # noqa: F401 (its environment: caches of this session only, no GPU)
from tests.forkserver import PRELOADED, Forkserver
from tests.fuzz.attempt import SECONDS
from tests.fuzz.good import make_good
from tests.fuzz.kinds import KINDS
from tests.fuzz.run import COMMAND_MODULES, fuzz, in_turn, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit of a command")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind")
    parser.add_argument("--number", type=int, help="only the case of this number, of each kind")
    args = parser.parse_args()
    kinds = args.kind or list(KINDS)
    cases = in_turn(args.count, kinds)
    if args.number is not None:
        cases = [(kind, args.number) for kind in kinds]
    folder = Path(tempfile.mkdtemp(prefix="fuzz_", dir="/tmp"))
    server = Forkserver([*PRELOADED, *COMMAND_MODULES])
    found: Counter[tuple[str, str]] = Counter()
    good = make_good(folder / "good", server)
    tried = fuzz(server, good, folder, cases=cases, seed=args.seed, seconds=args.seconds)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C: the table of those that were tried
        for number, (kind, end) in enumerate(tried, 1):
            if number % 100 == 0:
                print(f"{number:,} of {len(cases):,}", file=sys.stderr, flush=True)
            if isinstance(end, int):
                found[kind, f"exit code {end}"] += 1
            else:
                found[kind, "broken"] += 1
                print(end, file=sys.stderr, flush=True)
    server.close()
    print(table(found))
    if any(end == "broken" for _, end in found):
        sys.exit(f"what was broken is in {folder}")


if __name__ == "__main__":
    main()
