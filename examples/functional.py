"""The arithmetic alone: one round's updates in, one step out, for torch tensors and numpy arrays.

Three clients send updates of a two-parameter model. The third points exactly against the reference.
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

# With a trusted reference every update is cut to its length first: a lie of any size weighs no more than the truth.
root = np.array([0.0, 2.0])
lies = np.array([[3.0, 4.0], [-30e6, -40e6], [0.0, -10.0]])
for c in (0.1, 0.25, 0.5):
    print(f"BR-DRAG c={c:<5}", functional.br_drag(lies, root, c))
print("FLTrust        ", functional.fltrust(lies, root))
