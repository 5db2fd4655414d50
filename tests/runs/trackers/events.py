"""Read TensorBoard's event files back, as TensorBoard does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]


def read_events(run: Path) -> Any:
    """The events in the order of the files; rounds that a restarted writer discards are discarded."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    return events.Reload()


def read_scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Name -> (round, value) of every scalar."""
    events = read_events(run)
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
