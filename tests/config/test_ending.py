"""The lines that a finished training run ends with."""

from pathlib import Path

from mixit_titan.config.ending import ending

METRICS = """\
{"step": 0, "validation_loss": 5.5, "perplexity": 244.69}
{"step": 1, "loss": 5.25}
{"step": 20, "loss": 3.5}
{"step": 20, "validation_loss": 3.25, "perplexity": 25.79}
"""


def test_losses_the_folder_and_what_to_type_next(tmp_path: Path) -> None:
    run = tmp_path / "my run"
    run.mkdir()
    (run / "metrics.jsonl").write_text(METRICS)
    assert ending(run, step=20, generates=True) == [
        "Finished after step 20: training loss 3.5000, validation loss 3.2500 (perplexity 25.79)",
        f"The run is in {run}",
        "Next:",
        f"  mixit-titan generate '{run}' --prompt 'The '",
        f"  mixit-titan compare '{run}' ANOTHER_RUN",
    ]


def test_nothing_is_promised_that_the_run_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 5.25}\n')
    assert ending(tmp_path, step=1, generates=False) == [
        "Finished after step 1: training loss 5.2500",
        f"The run is in {tmp_path}",
    ]
    assert ending(tmp_path / "none", step=1, generates=False)[0] == "Finished after step 1"
