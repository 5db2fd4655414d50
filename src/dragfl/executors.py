"""Run and resume an experiment where `engine.executor` says: in this process, on a Ray cluster, or on Flower."""

from __future__ import annotations

from dragfl.runs.loop import resume, run

__all__ = ["resume", "run"]
