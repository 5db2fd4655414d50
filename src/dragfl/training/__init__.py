"""Local training: which samples a client draws, and the trainers that learn from them.

| trainer | for | against the reference loop |
|---|---|---|
| reference | any module | plain autograd and SGD |
| dense | Linear and ReLU layers | no autograd, steps in place |
| channels_last | convolutions | the same loop on a memory layout that convolutions like |

The choice depends on the module alone, is written to the resolved spec, and changes results only in the last digits.
"""
