"""Non-negative least squares for many right-hand sides at once, by block principal pivoting.

    a_i = argmin_(a >= 0) a^T G a / 2 - b_i^T a          G (K, K) positive semi-definite, b (n, K)

J. Kim, H. Park: Fast Nonnegative Matrix Factorization: An Active-Set-Like Method and Comparisons, SIAM J. Sci. Comput.
33, 2011. Every row has a passive set: on it the gradient y = G a - b is zero, outside of it a is zero. Coordinates with
a < 0 or y < 0 change sides, all at once; after three exchanges that do not lower their number only the last one
changes, which cannot cycle. A row takes about ten systems of K equations, solved for all rows together.

Dependent directions make G singular, and rounding in float32 gives it negative eigenvalues, with which the exchanges
need not end and a row may get any result. So the diagonal is raised until the smallest eigenvalue is RIDGE.
"""

from __future__ import annotations

from dragfl.lazy import Tensor, torch

RIDGE = 1e-6  # the smallest eigenvalue of G, relative to its mean diagonal: above the rounding of float32 dots
TOLERANCE = 1e-10
PATIENCE = 3  # exchanges of all wrong coordinates without progress
MOST = 60  # systems for each coordinate, against endless rounding; Murty's rule itself ends


def nnls(gram: Tensor, rhs: Tensor) -> Tensor:
    """(n, K) float64 solutions for the (n, K) right-hand sides."""
    n, K = rhs.shape
    G, b = gram.double(), rhs.double()
    least = RIDGE * G.diagonal().mean().clamp_min(1e-300)
    lift = (least - torch.linalg.eigvalsh(G)[0]).clamp_min(0.0)
    G = G + lift * torch.eye(K, dtype=G.dtype, device=G.device)
    passive = torch.zeros(n, K, dtype=torch.bool, device=G.device)
    a, y = torch.zeros_like(b), -b
    best = torch.full((n,), K + 1, device=G.device)  # fewest wrong coordinates so far
    patience = torch.full((n,), PATIENCE, device=G.device)
    for _ in range(MOST * K):
        wrong = (passive & (a < -TOLERANCE)) | (~passive & (y < -TOLERANCE))
        count = wrong.sum(1)
        rows = (count > 0).nonzero().flatten()
        if not len(rows):
            break
        fewer = count < best
        best = torch.where(fewer, count, best)
        patience = torch.where(fewer, PATIENCE, patience - 1)
        positions = torch.arange(K, device=G.device)
        last = positions == torch.where(wrong, positions, -1).amax(1, keepdim=True)
        passive ^= torch.where((patience >= 0).unsqueeze(1), wrong, last & wrong)
        free = passive[rows].to(G.dtype)
        system = G * free.unsqueeze(2) * free.unsqueeze(1) + torch.diag_embed(1.0 - free)
        solved = torch.linalg.solve(system, (b[rows] * free).unsqueeze(2)).squeeze(2) * free
        a[rows] = solved
        y[rows] = (solved @ G - b[rows]) * (1.0 - free)
    return a.clamp_min(0.0)
