"""Shows the progress of a run: a bar on a terminal, one line per evaluation elsewhere, and wandb on
request."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mixit_titan.runtime.metrics import never_prompt_for_wandb


class Reporter:
    """Reports the evaluations of a run as they happen."""

    def __init__(
        self, name: str, steps: int, *, console: Console, wandb_settings: dict[str, Any] | None
    ) -> None:
        """`wandb_settings`: log to wandb too, with these as the run's config."""
        self.console, self.name, self.steps = console, name, steps
        self.loss = self.accuracy = float("nan")
        self.progress = Progress(
            TextColumn("{task.description}"),
            *Progress.get_default_columns()[1:3],
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.bar = self.progress.add_task(name, total=steps, note="")
        self.wandb = None
        if wandb_settings is not None:
            import wandb

            never_prompt_for_wandb()
            self.wandb = wandb.init(name=name, config=wandb_settings)

    def __enter__(self) -> "Reporter":
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.progress.stop()
        if self.wandb is not None:
            self.wandb.finish(exit_code=0 if kind is None else 1)

    def show(self, line: dict[str, Any]) -> None:
        """Show one line of metrics.jsonl."""
        self.loss = line.get("loss", self.loss)
        self.accuracy = line.get("accuracy", self.accuracy)
        note = f"loss {self.loss:.4f}  accuracy {self.accuracy:.2%}"
        self.progress.update(self.bar, completed=line["step"], note=note)
        if not self.console.is_terminal and "accuracy" in line:
            self.console.print(
                f"{self.name}: step {line['step']:,} of {self.steps:,}, {note}, "
                f"{line['seconds']:,.0f} s",
                soft_wrap=True,
            )
        if self.wandb is not None:
            self.wandb.log({k: v for k, v in line.items() if k != "step"}, step=line["step"])
