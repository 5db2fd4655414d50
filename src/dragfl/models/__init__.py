"""Networks by name: those of the paper, residual networks, a GRU. A user-defined model is `module:attr` or an object.

A model is a callable (shape, classes, **settings) -> nn.Module, or an nn.Module to start from.
"""

from dragfl.models.networks import cnn, gru, logistic, mlp, resnet, resnet18

MODELS = {"logistic": logistic, "mlp": mlp, "cnn": cnn, "resnet": resnet, "resnet18": resnet18, "gru": gru}

__all__ = ["MODELS", "cnn", "gru", "logistic", "mlp", "resnet", "resnet18"]
