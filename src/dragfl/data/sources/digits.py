"""The embedded default dataset: 1,797 8x8 images of handwritten digits, with 16 levels of grey.

The test set of E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository (1998), as scikit-learn ships it. Every fifth sample is test data.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch

from dragfl.data.dataset import Dataset


def load() -> Dataset:
    packaged = files("dragfl.data.sources").joinpath("digits.npz")
    with packaged.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        x = torch.from_numpy(stored["images"]).unsqueeze(1)
        y = torch.from_numpy(stored["labels"].astype(np.int64))
    test = torch.arange(len(y)) % 5 == 4
    parts = (x[~test], y[~test], x[test], y[test])
    return Dataset("digits", *parts, classes=10, scale=16.0, class_names=tuple("0123456789"))
