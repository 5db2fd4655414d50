"""The client of this app: it loads the arrays it is sent, trains on its own data and returns the arrays."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import Net, load_data, test, train

app = ClientApp()


@app.train()
def train_handler(message: Message, context: Context) -> Message:
    net, (partition, partitions) = load_net(message), partition_of(context)
    x, y = load_data(partition, partitions)
    server_round = int(str(message.content.config_records["config"]["server-round"]))
    torch.manual_seed((int(context.run_config["seed"]) * 1000 + server_round) * 1000 + partition)
    loss = train(net, x, y, int(context.run_config["local-epochs"]), float(context.run_config["lr"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_handler(message: Message, context: Context) -> Message:
    x, y = load_data(*partition_of(context))
    loss, accuracy = test(load_net(message), x, y)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def load_net(message: Message) -> Net:
    net = Net()
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return net


def partition_of(context: Context) -> tuple[int, int]:
    """(this node's part of the data, the number of parts)."""
    return int(context.node_config["partition-id"]), int(context.node_config.get("num-partitions", 10))
