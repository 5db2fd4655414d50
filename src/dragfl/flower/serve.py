"""dragfl's own server: `server_app(spec)` runs the rounds of a spec with the nodes of a Flower federation.

Everything but the clients is the simulator's: rounds, evaluation, target, checkpoints, run directory. A run directory
with an unfinished run of the same spec is continued: server state, roster and accepted rounds.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from dragfl.config.assumed_f import smallest_f
from dragfl.config.spec import Experiment, load
from dragfl.engine.simulator import Worker
from dragfl.errors import DragflError, Interrupted, SpecError
from dragfl.flower.accepted import Accepted
from dragfl.flower.backend import FlowerBackend
from dragfl.flower.exchange import LONGEST_PAUSE_S, Exchange, StopRequest
from dragfl.runs.directory import Run, find_run
from dragfl.runs.loop import check_folder, run_or_resume
from dragfl.runs.same_run import check_same_experiment
from dragfl.types import RoundRecord

TELL_EVERY_S = 10.0  # while waiting for nodes

LOG = logging.getLogger("dragfl")


def server_app(spec: str | Path) -> ServerApp:
    """The ServerApp of `spec`, a TOML file.

    Its run config has `run-dir`, an absolute path; `overrides`, words of key=value; and `log`, names of trackers.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _log_to_console()
        stop = StopRequest()
        caught: list[int] = []
        try:
            with _stop_on_signals(stop, caught):
                serve(spec, context.run_config, Exchange(grid, stop))
        except Interrupted as error:
            if not caught:
                raise
            LOG.warning("%s", error)
            signal.raise_signal(caught[0])  # Flower ends the process as it does for any ServerApp
            raise

    return app


def serve(spec: str | Path, run_config: Mapping[str, Any], exchange: Exchange) -> Run:
    """Run the spec into `run-dir`, or continue the run that is there. A finished run is returned at once."""
    folder = run_folder(run_config)
    overrides = str(run_config.get("overrides", "")).split()
    experiment = load(spec, *overrides, "engine.executor=flower", "engine.device=cpu")

    def connect(experiment: Experiment, worker: Worker) -> tuple[FlowerBackend, Accepted]:
        store = Accepted(worker.info.clients)
        zero_lost = experiment.state.on_missing == "zero"
        return FlowerBackend(exchange, worker, store, experiment.flower, folder, zero_lost), store

    existing = find_run(folder)
    if existing is None:
        check_folder(experiment, folder, fresh=False)
    else:
        check_same_experiment(experiment, existing)
    if smallest_f(experiment.algorithm.aggregate) == 0:
        LOG.warning("%s assumes no malicious client: f = 0; set algorithm.f to defend", experiment.algorithm.name)
    if existing is None or not existing.complete:
        needed = experiment.flower.min_nodes or experiment.clients.total
        wait_for_nodes(exchange, needed, experiment.flower.wait)
        LOG.info("%s the run in %s", "starting" if existing is None else "continuing", folder)
    run = run_or_resume(
        experiment,
        folder,
        on_record=lambda record: LOG.info("%s", progress_line(record, experiment.rounds)),
        should_stop=lambda: exchange.stop.asked,
        log=str(run_config.get("log", "")).split(),
        connect=connect,
    )
    result = run.result or {}
    LOG.info("%s: finished after %s rounds, accuracy %s", folder, result.get("rounds"), result.get("accuracy"))
    if run.diverged:
        LOG.error("%s: %s", folder, result.get("message"))
    return run


def run_folder(run_config: Mapping[str, Any]) -> Path:
    """`run-dir` of the run config. A relative path would be relative to where SuperLink was started."""
    given = run_config.get("run-dir", "")
    if not isinstance(given, str) or not Path(given).is_absolute():
        raise SpecError(f"run-dir: {given!r} is no absolute path; give one: --run-config \"run-dir='/path'\"")
    return Path(given)


def wait_for_nodes(exchange: Exchange, needed: int, wait_s: float) -> None:
    """Return when so many nodes are connected; `DragflError` if they are not within this time."""
    until, told = exchange.clock() + wait_s, float("-inf")
    while True:
        nodes = exchange.nodes(until)
        if len(nodes) >= needed:
            return
        names = f" ({', '.join(sorted(node.label for node in nodes))})" if nodes else ""
        seen = f"{len(nodes)} of {needed} connected{names}"
        now = exchange.clock()
        if now >= until:
            raise DragflError(
                f"nodes: {seen} within {wait_s:g} s; start the missing SuperNodes (`flwr supernode list` shows those "
                "that SuperLink knows), raise flower.wait, or lower flower.min_nodes"
            )
        if now - told >= TELL_EVERY_S:
            LOG.info("waiting for nodes: %s", seen)
            told = now
        exchange.sleep(min(LONGEST_PAUSE_S, until - now))


def progress_line(record: RoundRecord, rounds: int) -> str:
    """One line a round: how many replies were used, who is missing and why, the accuracy."""
    metrics, clients = record.metrics, record.clients
    parts = [f"round {record.round} of {rounds}: {metrics['used']} of {metrics['sampled']} clients used"]
    reasons = clients.get("reason", [])
    named = zip(clients["client"], clients.get("node", clients["client"]), reasons, strict=False)
    if missing := [f"{node or f'client {m}'} ({reason})" for m, node, reason in named if reason]:
        parts.append(f"missing: {', '.join(missing)}")
    parts += [f"{metrics[name]} {name}" for name in ("refused", "late", "lost_states") if name in metrics]
    parts += [f"skipped: {metrics['skipped']}"] if "skipped" in metrics else []
    parts += [f"accuracy {record.accuracy:.4f}"] if record.accuracy is not None else []
    return "; ".join([*parts, f"{record.timing['seconds']:.1f} s"])


@contextmanager
def _stop_on_signals(stop: StopRequest, caught: list[int]) -> Iterator[None]:
    """SIGINT and SIGTERM end a wait for replies at once, anything else after the round; a second one is Flower's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        caught.append(number)
        LOG.warning("%s: writing a checkpoint", signal.Signals(number).name)
        stop.ask()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()


def _log_to_console() -> None:
    """Show what dragfl logs, unless logging is set up already; Flower collects what a ServerApp prints."""
    if not LOG.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("dragfl %(levelname)s: %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
