"""Weights & Biases: one run of the project "dragfl"; its files are in `wandb/` of the run directory. Account, project
and mode are set by the environment variables of W&B, such as WANDB_PROJECT and WANDB_MODE=offline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from dragfl.runs.directory import Run
from dragfl.runs.trackers import Status, flat

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class WandB:
    """A W&B run whose steps are rounds. A resumed run has the id of the first one and continues after the last step
    of the server; offline no step is known, so the new offline run has all rounds."""

    def __init__(self, run: Run, stored: Mapping[str, Any] | None) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "dragfl"),
            name=run.path.name,
            dir=str(run.path),
            id=None if stored is None else stored["id"],
            resume=None if stored is None else "allow",
            config=flat(run.spec),
            settings=wandb.Settings(console="off", silent=True),
        )
        self.identity: Mapping[str, Any] = {"id": self._run.id}
        self.next_round = max(1, self._run.step)

    def settings(self, run: Run) -> None:
        """`wandb.init` has them."""

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=round)

    def figure(self, round: int, name: str, figure: Figure) -> None:
        import wandb
        from PIL import Image  # which matplotlib needs

        png = BytesIO()
        figure.savefig(png, dpi=150)
        self._run.log({f"figures/{name}": wandb.Image(Image.open(png))}, step=round)

    def close(self, status: Status) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)


opened = WandB
