"""How an aggregated step moves the model: pairs (init, update)."""

from dragfl.server_steps.adabest import AdaBestServer
from dragfl.server_steps.adaptive import Adagrad, Adam, Yogi
from dragfl.server_steps.momentum import Momentum
from dragfl.server_steps.sgd import SGD

SERVER_STEPS = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
    "adagrad": Adagrad,
    "adabest": AdaBestServer,
}
