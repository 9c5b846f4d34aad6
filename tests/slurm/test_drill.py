"""The drill through real jobs. What it does to a rank, it does on the rank's node."""

import json
from pathlib import Path

from .cluster import Cluster
from .conftest import MIXIT, call


def test_the_drill_passes_on_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    cluster.wait_until_idle()
    words = ["--slurm", "--nodes", "2", "--gpus-per-node", "0", "--out", str(tmp_path)]
    said = call(cluster, "drill", MIXIT, *words, "--only", "kill_launcher", "requeue")
    assert f"mixit-titan submit {MIXIT} --nodes 2 --gpus-per-node 0" in said
    trials = json.loads((tmp_path / "drill.json").read_text())["faults"]
    assert [trial["fault"] for trial in trials] == ["kill_launcher", "requeue"]
    for trial in trials:
        assert (trial["outcome"], trial["losses"], trial["weights"]) == ("passed", 0, 0), trial
