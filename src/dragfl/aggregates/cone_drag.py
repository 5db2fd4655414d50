"""Cone DRAG: the reference is the cone of the class gradients instead of one direction.

BR-DRAG compares every update with the one direction of the root data. On heterogeneous data honest updates are nearly
orthogonal to it. Under label shift (P(x|y) equal at all clients) the expected gradient of a client with label mix pi is
sum_k pi_k grad L_k, so it lies in the cone of the class gradients, which the server estimates from its labelled root
data in every round:

    D_k   = the update of one local step on root samples of class k,    u_k = D_k / |D_k|
    x_m   = |projection of g_m/|g_m| on {sum_k a_k u_k, a >= 0}|     the fit: the cosine of the update with the cone
    x_m^- = the same for -g_m                                       the fit of the reversed update
    s_m   = sign(x_m - x_m^-),    w_m = |x_m - x_m^-|               a reversed update is turned back

The coefficients a_mk of the projection of s_m g_m/|g_m| estimate the label mix of the client. They show which classes
the clients of recent rounds do not supply, because nobody has them or because their owners attack. The root data supply
what is missing:

    a_k   = sum_m w_m a_mk / sum_m w_m                                 supply of class k by the clients of a round
    e_k   = min(|D_k| / sum_l |D_l|, 1 / K) sum_l a_l                  at most an equal share; less where D_k is short
    l^t   = (1 - alpha) l^(t-1) + alpha (e - a),    d_k = (l_k)_+ sum_m w_m
    Delta = |r| (sum_m s_m w_m g_m/|g_m| + w_max r/|r| + sum_k d_k u_k) / (sum_m w_m + w_max + sum_k d_k)

with r the root update as in BR-DRAG, and Delta = 0 if all w vanish. The projection needs only dots: it is a
non-negative least-squares problem with the (K, K) matrix of <u_k, u_l>. Given the directions a block folds to
sum s w g/|g|, sum w and sum w a.

Propositions (tests/aggregates/test_cone_drag.py):

1. Membership. With one local step on the samples from which the server computes u_k, an honest update has x = 1.
2. |Delta| <= |r|, whatever is sent: the denominator is at least the sum of the lengths in the numerator.
3. Updates g and p g have the same effect for every real p that is not 0. The attack of the paper, random p, has none.
4. If r lies in the cone, an update pulls against r by at most 1/4: w |<g/|g|, r/|r|>| <= 1/4 where s <g, r> < 0.
   (Take s = 1. Then x^- >= <-g/|g|, r/|r|>, because r is in the cone, and w <= 1 - x^-; and (1 - x^-) x^- <= 1/4.)
   It is attained by a direction of the cone at 120 degrees to r.

Limits: a class without root samples has no direction; updates of clients with this class fit worse. Near a stationary
point of some label mix, 0 = sum_k pi_k grad L_k, the cone opens to a subspace, x - x^- tends to 0 and its sign to
noise; `opening` measures it as the distance of 0 from the convex hull of the u_k. See docs/cone.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dragfl.arithmetic import EPS, combine, inverse_norms, norm
from dragfl.cone import Cone, cone_of, fits, opening
from dragfl.errors import PartError, SettingError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range
from dragfl.types import DirectionSettings, FederationInfo, Need, Partial, RoundContext, RoundInputs, Updates


@dataclass(frozen=True)
class ConeDragState:
    gap: Tensor | None = None  # (K,) l; None before the first round


@dataclass(frozen=True)
class ConeDragPlan(Cone):
    r: Tensor


@dataclass(frozen=True)
class ConeDrag:
    """Weights each update by its fit to the cone of the root data's class gradients; turns reversed updates back.

    | argument | symbol |
    |---|---|
    | samples | root samples of class k from which u_k is computed |
    | groups | the largest K; with more classes, class k belongs to group k mod groups |
    | turn | turn updates with x < x^- back; `false`: they have weight 0 |
    | balance | supply missing classes from the root data; `false`: d = 0 |
    | alpha | alpha in (0, 1]: how fast l follows the supply of the last round |
    """

    samples: int = 8
    groups: int = 128
    turn: bool = True
    balance: bool = True
    alpha: float = 0.1
    aggregates_extras: ClassVar[bool] = False  # the directions are a reference for updates, not for extras
    paper: ClassVar[str] = "dragfl, docs/cone.md"

    def __post_init__(self) -> None:
        for name in ("samples", "groups"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise SettingError("cone_drag", name, f"{value!r}; give a whole number of at least 1")
        check_range("cone_drag", "alpha", self.alpha, 0.0, 1.0, open_low=True)

    @property
    def direction_settings(self) -> DirectionSettings:
        return DirectionSettings(self.samples, groups=self.groups)

    def init(self, info: FederationInfo) -> ConeDragState:
        return ConeDragState()

    def needs(self, state: ConeDragState) -> frozenset[Need]:
        return frozenset({"root", "directions"})

    def begin(
        self, state: ConeDragState, context: RoundContext, inputs: RoundInputs, info: FederationInfo
    ) -> ConeDragPlan:
        if inputs.root is None or inputs.directions is None:
            raise ValueError("cone_drag needs the root update and the directions; give `root` and `directions`")
        K = len(inputs.directions)
        if state.gap is not None and len(state.gap) != K:
            seen = f"{K} directions after {len(state.gap)} in earlier rounds"
            raise PartError(f"cone_drag: {seen}; give those of the same classes in every round")
        return ConeDragPlan(**vars(cone_of(inputs.directions)), r=inputs.root)

    def fold(self, plan: ConeDragPlan, block: Updates) -> Partial:
        x, reverse, toward, away = fits(plan, block.delta, block.norm)
        weight = self._weight(x, reverse)
        turned = reverse > x
        signed = torch.where(turned, -weight, weight)
        scaled = torch.stack([signed * inverse_norms(block.norm), torch.ones_like(weight)])
        kept, total = combine(scaled, block.delta)
        sums = {
            "kept": kept,
            "weight": weight.sum(),
            "supply": weight @ torch.where(turned.unsqueeze(1), away, toward),
            "turned": turned.sum(),
        }
        columns = {"norm": block.norm, "fit": x, "reverse_fit": reverse, "suspicion": 1.0 - (x - reverse)}
        return Partial.of(block, sums, columns, total)

    def finish(
        self, state: ConeDragState, plan: ConeDragPlan, partial: Partial
    ) -> tuple[Tensor, ConeDragState, Mapping[str, float]]:
        columns, weight = partial.per_client, float(partial.sums["weight"])
        metrics = {
            "fit_mean": float(columns["fit"].mean()),
            "reverse_fit_mean": float(columns["reverse_fit"].mean()),
            "turned": float(partial.sums["turned"]) / partial.count,
            "opening": opening(plan),
        }
        length = norm(plan.r)
        if weight <= EPS or not EPS < length < math.inf:
            return torch.zeros_like(plan.r), state, {**metrics, "supplied": 0.0}
        gap = self._next_gap(state, plan, partial.sums["supply"].double() / weight)
        missing = weight * gap.clamp_min(0.0) if self.balance else torch.zeros_like(gap)
        largest = float(self._weight(columns["fit"], columns["reverse_fit"]).max())
        supplied = float(missing.sum())
        step = partial.sums["kept"].double() + (largest / length) * plan.r.double()
        if supplied > 0:
            step += (missing * inverse_norms(plan.lengths)).to(plan.directions.dtype) @ plan.directions
        whole = weight + largest + supplied
        metrics |= {"supplied": supplied / whole}
        return (step * (length / whole)).to(plan.r.dtype), ConeDragState(gap), metrics

    def _weight(self, x: Tensor, reverse: Tensor) -> Tensor:
        return (x - reverse).abs() if self.turn else (x - reverse).clamp_min(0.0)

    def _next_gap(self, state: ConeDragState, plan: ConeDragPlan, supply: Tensor) -> Tensor:
        """l^t from the supply of this round; some update has a weight, so there is a direction."""
        share = plan.lengths / plan.lengths.sum()
        due = share.clamp_max(1.0 / int((plan.lengths > 0).sum())) * supply.sum()
        gap = due - supply
        return gap if state.gap is None else torch.lerp(state.gap, gap, self.alpha)
