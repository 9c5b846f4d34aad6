"""A worker whose cases say what happens to it."""

import os
import subprocess
import sys
import time
from pathlib import Path

from mixit_titan.gpu_check.process import Case, answer


def work(do: str, file: str = "") -> Case:
    if do == "raise":
        raise ValueError("wrong in a few words")
    if do == "abort":
        print("the last line before the end", flush=True)
        os.abort()
    if do == "hang":
        # A session of its own, as torchrun's ranks have.
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(sleep, start_new_session=True)
        Path(file).write_text(str(child.pid))
        time.sleep(600)
    return {"did": do}


if __name__ == "__main__":
    answer(work)
