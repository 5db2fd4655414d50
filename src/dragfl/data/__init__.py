"""Datasets by name, their split into clients, and the trusted root data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragfl.data.dataset import Dataset

SOURCES = {"digits": "dragfl.data.digits"}  # name -> module with `load() -> Dataset`


def load(name: str) -> Dataset:
    """The dataset of this name."""
    from importlib import import_module

    from dragfl.errors import SpecError, nearest

    if name not in SOURCES:
        raise SpecError(f"unknown dataset '{name}'{nearest(name, SOURCES)}")
    dataset: Dataset = import_module(SOURCES[name]).load()
    return dataset
