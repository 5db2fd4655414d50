"""The server of this app. Two lines differ from Flower's quickstart: the import of the strategy, and its name."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from dragfl.flower import DragStrategy
from quickstart.task import Net, load_test, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(int(context.run_config["seed"]))
    strategy = DragStrategy(c=0.25, alpha=0.25, fraction_train=float(context.run_config["fraction-train"]))
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
    print(result.evaluate_metrics_serverapp)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Loss and accuracy on the samples held out on the server."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(net, *load_test())
    return MetricRecord({"loss": loss, "accuracy": accuracy})
