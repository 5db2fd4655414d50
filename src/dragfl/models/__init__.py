"""The networks of the paper and a small ResNet, by name. A user-defined model is `module:attr` or an object.

A model is a callable (shape, classes, **settings) -> nn.Module, or an nn.Module to start from.
"""

from dragfl.models.networks import cnn, logistic, mlp, resnet

MODELS = {"logistic": logistic, "mlp": mlp, "cnn": cnn, "resnet": resnet}

__all__ = ["MODELS", "cnn", "logistic", "mlp", "resnet"]
