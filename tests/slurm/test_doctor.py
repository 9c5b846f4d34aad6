"""Doctor inside of a real job."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from .cluster import NODES, Cluster


def test_doctor_knows_the_job_and_names_no_node(cluster: Cluster, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mixit_titan", "doctor", "--json", "--folder", str(tmp_path)]
    flags = ["--parsable", "--gpus-per-node=2", f"--output={tmp_path}/said", "--error=/dev/null"]
    submitted = subprocess.run(
        ["sbatch", *flags, "--wrap", shlex.join(words)],
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    job = submitted.stdout.strip()
    assert cluster.wait(job) == "COMPLETED"
    said = (tmp_path / "said").read_text()
    checks = {check["name"]: check for check in json.loads(said)["checks"]}
    expected = f"job {job}, nodes: 1, GPUs on this one: 2, CUDA_VISIBLE_DEVICES 0,1"
    assert checks["slurm job"]["fact"] == expected
    # The GPUs are invented.
    assert checks["slurm job"]["state"] == "warning"
    assert "torch can use 0 of them" in checks["slurm job"]["advice"]
    assert checks["slurm"]["fact"].endswith("the controller answers")
    assert not any(node in said for node in NODES)
