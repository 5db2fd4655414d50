"""BOBA: honest updates lie in the simplex of the class updates; find its subspace, then leave out what is far outside.

Bao, Wu, He: BOBA: Byzantine-Robust Federated Learning with Label Skewness, AISTATS 2024.

Under label skew (P(x|y) equal at all clients) the expected update of a client with label mix p is sum_k p_k c_k, where
c_k is the update of class k. So honest updates are near a simplex with K vertices, in a subspace of K - 1 dimensions.
The server estimates the vertices on its labelled root data, with a client's local steps.

    stage 1   A = the affine subspace of a PCA of c_1 .. c_K with K - 1 components
              repeat: S = the n - f updates nearest to A;  A = PCA of S with K - 1 components;  until S repeats
    stage 2   z_i, v_k = coordinates of g_i, c_k in A
              p_i = [z_i, 1] pinv [v_k, 1]_k        label mix of client i: sum_k p_ik v_k = z_i, sum_k p_ik = 1
              low_i = min_k p_ik
              T = {low_i >= p_min} if the (n - f)-th largest low is above p_min, else the n - f largest low
    Delta = the mean over T of the projections of g_i on A

| symbol | here |
|---|---|
| n, f | updates; those assumed to be malicious |
| K | classes of the root data |
| p_min | `p_min`: the lowest fraction of a class that an update may have |

Needs n > 2f; f = 0 gives the mean. A PCA of S has at most n - f - 1 components (the one of the authors' code raises an
error for K - 1 > n - f). With K >= n - f the subspace goes through all of S, so stage 1 is only the first selection.
With K > n - f, p_i is the mix of least norm, and few updates have a number below p_min: BOBA is made for K << n. With
K = 1 the subspace is a point, and Delta is the mean of S.

All is computed from the dots of the n + K vectors less the mean of the c_k: the method commutes with a shift. The
coordinates are divided by the largest one of a vertex before the pseudo-inverse, so it commutes with a change of scale
as well, also where vertices coincide; elsewhere this changes nothing.

Suspicion is (distance from A) / (root mean square distance of the c_k from their mean) - low_i. The rule itself decides
by low_i alone: an update far from A whose projection is in the simplex is kept, as this projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dragfl.aggregates.robust.contract import assumed_f, check_settings, find_shortage, majority
from dragfl.aggregates.robust.gram import DOTS_PIECE, blend, pieces, tame
from dragfl.aggregates.robust.rule import check_feasible
from dragfl.arithmetic import finite_rows, row_norms
from dragfl.errors import Infeasible
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range
from dragfl.types import (
    DirectionSettings,
    FederationInfo,
    Need,
    NoState,
    Partial,
    RoundContext,
    RoundInputs,
    Updates,
    no_state,
)

ROUNDING = 1e-12  # a squared length below this share of the largest one is rounding: float32 rows have 1e-14 of it


@dataclass(frozen=True)
class BobaPlan:
    classes: Tensor  # (K, d) c_k
    per_round: int


@dataclass(frozen=True)
class Subspace:
    """An affine subspace, by the coordinates of all rows in it."""

    z: Tensor  # (rows, r) coordinates
    off: Tensor  # (rows,) squared distances from it
    centre: Tensor  # (rows,) its origin is centre @ rows
    axes: Tensor  # (r, rows) its orthonormal axes are axes @ rows


@dataclass(frozen=True)
class Boba:
    """Finds the subspace of honest updates under label skew and leaves out what is far outside the classes' simplex.

    | argument | symbol |
    |---|---|
    | f | f, updates assumed to be malicious |
    | p_min | p_min, the lowest fraction of a class |
    | iterations | the largest number of PCAs of updates in stage 1 |
    | samples | root samples of a class in each local step of c_k |
    | groups | the largest K; with more classes, class k belongs to group k mod groups |
    """

    f: int | None = None
    p_min: float = -0.5
    iterations: int = 10
    samples: int = 32
    groups: int = 128
    name: ClassVar[str] = "boba"
    paper: ClassVar[str] = "Bao et al. 2024"
    aggregates_extras: ClassVar[bool] = False  # the classes' updates are a reference for updates, not for extras

    def __post_init__(self) -> None:
        check_settings(self)
        check_range("boba", "p_min", self.p_min, -1e9, 1.0)

    least = majority
    init = no_state

    @property
    def direction_settings(self) -> DirectionSettings:
        """As many local steps as a client makes, so that vertices have the scale of updates."""
        return DirectionSettings(self.samples, steps=None, groups=self.groups)

    def needs(self, state: NoState) -> frozenset[Need]:
        return frozenset({"all", "directions"})

    def begin(self, state: NoState, context: RoundContext, inputs: RoundInputs, info: FederationInfo) -> BobaPlan:
        if inputs.directions is None:
            raise ValueError("boba needs the update of each class of the root data; give `directions` to begin()")
        return BobaPlan(inputs.directions, info.per_round)

    def fold(self, plan: BobaPlan, block: Updates) -> Partial:
        missing = check_feasible((self,), None, plan.per_round, block)
        X, C = tame(block.delta, block.norm), _usable(plan.classes)
        n, keep = len(X), len(X) - assumed_f(self, None, missing)
        G = _centred_dots(X, C)
        A, fits = robust_subspace(G, n, keep, self.iterations)
        low = label_mixes(A.z[:n], A.z[n:]).amin(1)
        kept = inside(low, keep, self.p_min)
        weights = A.centre + A.z[kept].mean(0) @ A.axes
        # Weights of both signs may nearly cancel: float64, which `blend` uses for rows without a bound.
        step = blend(weights[:n].unsqueeze(0), X, torch.inf)[0]
        away, squares = A.off[:n].sqrt(), G.diagonal()
        spread = float(squares[n:].mean() or squares.mean() or 1.0) ** 0.5  # of one class: that of all vectors
        columns = {
            "norm": block.norm,
            "subspace_distance": away,
            "label_mix_min": low,
            "trust": torch.zeros_like(low).index_fill(0, kept, 1.0),
            "suspicion": away / spread - low,
        }
        return Partial.of(block, {"step": step, "fits": torch.tensor(float(fits))}, columns)

    def finish(self, state: NoState, plan: BobaPlan, partial: Partial) -> tuple[Tensor, NoState, Mapping[str, float]]:
        metrics = {"trust_mean": float(partial.per_client["trust"].mean()), "fits": float(partial.sums["fits"])}
        return partial.sums["step"].float(), state, metrics

    def shortage(self, n: int) -> str | None:
        return find_shortage((self,), n, None)


def _usable(classes: Tensor) -> Tensor:
    """The class updates that are finite."""
    norms = row_norms(classes)
    finite = finite_rows(norms)
    if not finite.any():
        raise Infeasible(f"boba: none of the {len(classes)} class updates of the root data is finite; lower clients.lr")
    return tame(classes, norms) if finite.all() else tame(classes[finite], norms[finite])


def _centred_dots(X: Tensor, C: Tensor) -> Tensor:
    """(n + K, n + K) float64 dots of the updates and the class updates, all less the mean of the class updates."""
    rows = len(X) + len(C)
    G = torch.zeros(rows, rows, dtype=torch.float64, device=X.device)
    for cut in pieces(X.shape[1], DOTS_PIECE):
        vertices = C[:, cut].double()
        piece = torch.cat([X[:, cut].double(), vertices]) - vertices.mean(0)
        G.addmm_(piece, piece.T)
    return G


def robust_subspace(G: Tensor, n: int, keep: int, iterations: int) -> tuple[Subspace, int]:
    """Stage 1 on the dots of n updates followed by K class updates: (A, number of PCAs of updates)."""
    K = len(G) - n
    A = principal_subspace(G, torch.arange(n, len(G), device=G.device), K - 1)
    chosen: Tensor | None = None
    for fits in range(iterations):
        nearest = A.off[:n].sort(stable=True).indices[:keep].sort().values
        if chosen is not None and torch.equal(nearest, chosen):
            return A, fits
        chosen, A = nearest, principal_subspace(G, nearest, K - 1)
    return A, iterations


def principal_subspace(G: Tensor, rows: Tensor, components: int) -> Subspace:
    """The PCA of some rows, from the dots G of all.

    With H the dots less the mean m of the rows and (lambda_j, u_j) the eigenpairs of H among them, the j-th axis is
    sum_s u_js (y_s - m) / sqrt(lambda_j). Its entries u_j add up to 0, so m drops out.
    """
    centre = torch.zeros(len(G), dtype=G.dtype, device=G.device).index_fill_(0, rows, 1.0 / len(rows))
    along = G @ centre
    H = G - along.unsqueeze(0) - along.unsqueeze(1) + centre @ along
    values, vectors = torch.linalg.eigh(H[rows][:, rows])
    real = values > ROUNDING * G.diagonal()[rows].max()
    values, vectors = values[real].flip(0)[:components], vectors[:, real].flip(1)[:, :components]
    axes = torch.zeros(len(values), len(G), dtype=G.dtype, device=G.device)
    axes[:, rows] = (vectors / values.sqrt()).T
    z = H @ axes.T
    square = H.diagonal()
    off = square - z.square().sum(1)
    return Subspace(z, torch.where(off > ROUNDING * square, off, 0.0), centre, axes)


def label_mixes(z: Tensor, vertices: Tensor) -> Tensor:
    """(n, K) p_i from coordinates (n, r) of the updates and (K, r) of the class updates."""
    largest = vertices.abs().max() if vertices.numel() else vertices.new_ones(())
    scale = torch.where(largest > 0, largest, 1.0)
    ones = z.new_ones(len(z), 1), z.new_ones(len(vertices), 1)
    mixes: Tensor = torch.cat([z / scale, ones[0]], 1) @ torch.linalg.pinv(
        torch.cat([vertices / scale, ones[1]], 1), rtol=ROUNDING
    )
    return mixes


def inside(low: Tensor, keep: int, p_min: float) -> Tensor:
    """The rows of T: all above p_min if these are at least `keep`, else the `keep` highest."""
    highest = low.sort(descending=True, stable=True).indices[:keep]
    if low[highest[-1]] > p_min:
        return (low >= p_min).nonzero().flatten()
    return highest.sort().values
