"""MLflow: one run of the MLflow experiment "dragfl". Server and experiment are set by the environment variables of
MLflow: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dragfl.runs.directory import SPEC, Run
from dragfl.runs.trackers import Status, flat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARK = "timing/seconds"  # a metric of every round; the last one logged shows which rounds the server has
ENDED = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MLflow:
    """A run on an MLflow server or in a local store. Rounds that it has already are not logged again."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.identity: Mapping[str, Any] = {"run_id": run_id}
        self._client, self._id = client, run_id
        history = client.get_metric_history(run_id, MARK)
        self.next_round = 1 + max((metric.step for metric in history), default=0)

    def settings(self, run: Run) -> None:
        from mlflow.entities import Param

        params = [Param(key, str(value)) for key, value in flat(run.spec).items()]
        for i in range(0, len(params), 100):  # the most that one call takes
            self._client.log_batch(self._id, params=params[i : i + 100])
        self._client.log_artifact(self._id, str(run.path / SPEC))

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, round) for name, value in values.items()]
        for i in range(0, len(metrics), 1000):
            self._client.log_batch(self._id, metrics=metrics[i : i + 1000])

    def figure(self, round: int, name: str, figure: Figure) -> None:
        self._client.log_figure(self._id, figure, f"figures/{name}.png")

    def close(self, status: Status) -> None:
        self._client.set_terminated(self._id, ENDED[status])


def opened(run: Run, stored: Mapping[str, Any] | None) -> MLflow:
    from mlflow import MlflowClient

    client = MlflowClient()
    if stored is not None:
        client.update_run(stored["run_id"], status="RUNNING")
        return MLflow(client, stored["run_id"])
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "dragfl")
    found = client.get_experiment_by_name(name)
    experiment = found.experiment_id if found is not None else client.create_experiment(name)
    return MLflow(client, client.create_run(experiment, run_name=run.path.name).info.run_id)
