"""A user-defined model and dataset: any nn.Module without buffers, any arrays.

    python own_model_and_data.py [ROUNDS]

Four classes of points in the plane. The module is copied, so the original does not change. `simulation.model()` returns
the trained weights by parameter name.
"""

import sys

import numpy as np
import torch
from torch import nn

import dragfl
from dragfl.data.dataset import from_tensors

draw = np.random.default_rng(0)
centres = np.array([[-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]])
labels = draw.integers(0, 4, 2000)
points = centres[labels] + draw.normal(size=(2000, 2))
data = from_tensors(points[:1600], labels[:1600], points[1600:], labels[1600:], name="four_clouds")

module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))

simulation = dragfl.simulate(
    dragfl.load(
        {
            "rounds": int(sys.argv[1]) if len(sys.argv) > 1 else 30,
            "data": {"dataset": data, "partition": {"kind": "dirichlet_class", "a": 0.3}},
            "clients": {"total": 16, "per_round": 8, "local_epochs": 1},
            "algorithm": {"name": "drag", "c": 0.1, "alpha": 0.5},
            "model": {"name": module},
        }
    )
)
last = list(simulation)[-1]
print(f"{data!r}: accuracy {last.accuracy:.3f} after {last.round} rounds")

trained = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
trained.load_state_dict(simulation.model())
with torch.no_grad():
    predictions = trained(torch.tensor(centres, dtype=torch.float32)).argmax(1).tolist()
print("classes at the four centres:", predictions)
