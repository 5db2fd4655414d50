"""The networks of the paper, by name. A user's own is `module:attr` or an object.

A model is a callable (shape, classes, **settings) -> nn.Module, or an nn.Module to start from.
"""

from dragfl.models.networks import cnn, logistic, mlp

MODELS = {"logistic": logistic, "mlp": mlp, "cnn": cnn}

__all__ = ["MODELS", "cnn", "logistic", "mlp"]
