"""TensorBoard: event files in `tensorboard/` of the run directory, through `torch.utils.tensorboard`, no TensorFlow.

tensorboard --logdir runs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dragfl.runs.directory import SPEC, Run
from dragfl.runs.trackers import Status, flat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "tensorboard"


class TensorBoard:
    """A writer of event files. A killed process may have lost its last events, so a resumed run writes all of them
    again; the first event of the new file has TensorBoard discard the rounds before it."""

    next_round = 1

    def __init__(self, run: Run, stored: Mapping[str, Any] | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.identity: Mapping[str, Any] = {"folder": FOLDER}
        self._writer: Any = SummaryWriter(str(run.path / FOLDER), purge_step=None if stored is None else 1)

    def settings(self, run: Run) -> None:
        from torch.utils.tensorboard.summary import hparams

        for summary in hparams(flat(run.spec), {"accuracy": 0.0}):  # type: ignore[no-untyped-call]
            self._writer.file_writer.add_summary(summary)
        self._writer.add_text("spec", f"```toml\n{(run.path / SPEC).read_text()}\n```", 0)

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, round)

    def figure(self, round: int, name: str, figure: Figure) -> None:
        self._writer.add_figure(name, figure, round, close=False)

    def close(self, status: Status) -> None:
        self._writer.close()


opened = TensorBoard
