"""dragfl's own client: a Flower ClientApp that trains as a client of the simulator does, with equal bits.

    app = client_app(Path(__file__).parent / "spec.toml")

| key of node-config | meaning |
|---|---|
| `partition-id` | the part of `data.dataset` that this node holds; default: the number the server gives it |
| `dataset` | the node's own data, any dataset of dragfl such as `npz:/data/train.npz`: all its training rows are used |
| `state-dir` | an absolute path; needed by algorithms whose clients keep a state |

Importing this file does not import torch: a node is asked for its `hello` before it trains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dragfl.config.spec import Experiment, load
from dragfl.errors import DragflError
from dragfl.flower.hello import hello_reply

if TYPE_CHECKING:
    from dragfl.flower.client_work import ClientWork

OVERRIDES = "overrides"  # of the run config: `key=value` words
PATH = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?[/\\][^\s'\"<>|:;,()]+")
MAX_TEXT = 600  # characters of an error that are sent to the server


class ClientFailed(DragflError):
    """What the server is told of an error on this node: Flower sends the text, so it has no paths of the node."""


def client_app(spec: str | Path | Mapping[str, Any] | Experiment) -> ClientApp:
    """The ClientApp of `spec`: a TOML file, tables or an experiment, which takes no overrides."""
    app = ClientApp()

    @lru_cache(maxsize=8)  # Flower starts a process for each message; a grid in memory does not
    def prepare(overrides: str, dataset: str | None, classes: int | None) -> ClientWork:
        from dragfl.flower.client_work import prepare_client

        experiment = spec if isinstance(spec, Experiment) else load(spec, *overrides.split())
        return prepare_client(experiment, dataset, classes)

    def handle(message: Message, context: Context, answer: Callable[..., Message]) -> Message:
        from dragfl.flower.messages import classes_of

        config = context.node_config
        overrides, dataset = str(context.run_config.get(OVERRIDES, "")), config.get("dataset")
        work = prepare(overrides, None if dataset is None else str(dataset), classes_of(message))
        return answer(work, message, config)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        with errors_without_paths(context.node_config):
            from dragfl.flower.client_work import train

            return handle(message, context, train)

    @app.query("gradient")
    def gradient(message: Message, context: Context) -> Message:
        with errors_without_paths(context.node_config):
            from dragfl.flower.client_work import full_gradient

            return handle(message, context, full_gradient)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        with errors_without_paths(context.node_config):
            return hello_reply(message, context.node_config)

    return app


@contextmanager
def errors_without_paths(node_config: Mapping[str, Any]) -> Iterator[None]:
    """Replace paths in the text of an exception; the node's own log has the original too."""
    try:
        yield
    except Exception as error:
        text = str(error) if isinstance(error, DragflError) else f"{type(error).__name__}: {error}"
        for key, value in node_config.items():
            for path in (str(value), str(value).partition(":")[2]):
                if isinstance(value, str) and len(path) > 1:
                    text = text.replace(str(Path(path).expanduser()), f"<{key}>").replace(path, f"<{key}>")
        raise ClientFailed(PATH.sub("<path>", text)[:MAX_TEXT]) from error
