"""Local training: minibatch sampling and the trainers.

| trainer | models | method |
|---|---|---|
| reference | any module | plain autograd and SGD |
| dense | Linear and ReLU layers | no autograd, in-place steps, several clients at once |
| channels_last | convolutions | the reference loop in channels-last memory format |

The selection depends on the module alone, is written to the resolved spec, and changes only the last digits of results.
"""
