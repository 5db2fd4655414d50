"""Aggregation rules as functions: the updates of one round in, one step out, for torch tensors and numpy arrays.

Three clients send updates of a model with two parameters. The third update is opposite to the reference.
"""

import numpy as np
import torch

from dragfl import functional

updates = torch.tensor([[3.0, 4.0], [0.0, 2.0], [-5.0, 0.0]])
reference = torch.tensor([1.0, 0.0])

print("mean           ", functional.mean(updates).tolist())
for c in (0.0, 0.1, 0.25, 0.5):
    divergence = functional.divergence(updates, reference, c)
    step = functional.drag(updates, reference, c)
    print(f"DRAG    c={c:<5}", step.tolist(), " lambda:", [round(value, 3) for value in divergence.tolist()])

# BR-DRAG rescales every update to the norm of the trusted reference, so a long malicious update has no more weight.
root = np.array([0.0, 2.0])
updates_sent = np.array([[3.0, 4.0], [-30e6, -40e6], [0.0, -10.0]])
for c in (0.1, 0.25, 0.5):
    print(f"BR-DRAG c={c:<5}", functional.br_drag(updates_sent, root, c))
print("FLTrust        ", functional.fltrust(updates_sent, root))
