"""Networks by name: those of the paper, residual networks, a GRU. A user-defined model is `module:attr` or an object.

A model is a callable (shape, classes, **settings) -> nn.Module, or an nn.Module to start from.

Parameters
----------
shape
    The shape of one input, such as (channels, height, width).
classes
    Number of outputs.
hidden
    Number of hidden units.
channels
    Channels of each convolution.
width
    Channels of the first stage; each later stage has twice as many.
blocks
    Residual blocks in a stage.
groups
    Groups of each GroupNorm.
embedding
    Size of the vector of a character.
layers
    Number of GRU layers.
"""

from dragfl.models.networks import cnn, gru, logistic, mlp, resnet, resnet18

MODELS = {"logistic": logistic, "mlp": mlp, "cnn": cnn, "resnet": resnet, "resnet18": resnet18, "gru": gru}

__all__ = ["MODELS", "cnn", "gru", "logistic", "mlp", "resnet", "resnet18"]
