"""Search for all minimisers of h over a box of y with constraints g <= 0, with proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from daeosens.errors import BudgetError, SolveError
from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.exclusion import excluded, second_order_excluded
from daeosens.tracing.daeo.intervals import Along, IntervalFunction
from daeosens.tracing.daeo.minimizers import BOUND_UNDECIDED, Minimizers
from daeosens.tracing.daeo.parts import Enclosures
from daeosens.tracing.daeo.region import Region

BOXES = 10_000
"""So many boxes are looked at by default."""

WIDTH = 1e-7
"""Boxes are not bisected below so many parts of the whole box."""

COVER = 1000
"""The boxes of a search before are taken up again if they are not more than this."""

LANES = 256
"""So many boxes are looked at together."""

NEAR = 1e-7
"""A constraint is active where it is nearer to 0 than this, relative to its slope and the box."""

_NARROW = "neither excluded nor proven: h and the constraints are nearly degenerate there"


@dataclass(frozen=True, eq=False)
class _Point:
    """A minimiser: place, active constraints, and the region in which it is alone."""

    y: Array
    active: npt.NDArray[np.int8]
    region: Array
    remark: str


class ConstrainedSearch:
    """Branch and bound for the minimisers of h over a box with constraints g <= 0.

    A box is discarded where some g is positive in all of it; where a direction leads down in h,
    in every g that may be active and into the box, from all of its points (none of them satisfies
    the conditions of Fritz John); where these conditions need other signs of multipliers; and
    where h + l g has negative curvature along directions that constraints leave.  A region holds
    exactly one minimiser if h + l g + r/2 g^2 is convex in it for all multipliers l that there may
    be (r only of constraints that are surely active), and no minimiser over the region is on its
    sides.  Boxes are bisected until they are discarded or inside of such regions.

    Functions are enclosed with outward rounding; what follows is done in floating point, with
    bounds of its errors (``parts``).  So it is proven where minimisers are, and that there are no
    others; which constraints are active at them is told by floating point, to 1e-7.

    Parameters
    ----------
    functions : sequence of IntervalFunction
        h, and each of g.
    box : array [n_y, 2]
        Lower and upper bounds of y.

    Attributes
    ----------
    boxes : int
        So many were looked at the last time.

    Source
    ------
    Hansen and Walster, Global Optimization Using Interval Analysis, 2004, chapters 13 and 14.
    """

    def __init__(self, functions: Sequence[IntervalFunction], box: Array) -> None:
        self.functions, self.box = functions, box
        self.boxes = 0

    def find(
        self,
        t: npt.ArrayLike,
        x: npt.ArrayLike,
        p: npt.ArrayLike | Mapping[str, Any] = (),
        mode: str = "all",
        *,
        budget: int | None = None,
        before: Minimizers | None = None,
    ) -> Minimizers:
        """Find all minimisers; arguments and result as of ``Search.find``.

        ``before`` is the result of a search near by, from whose boxes this one starts.

        Raises
        ------
        SolveError
            No y in the box satisfies the constraints.
        BudgetError
            Too many boxes.
        """
        del mode  # all in any case
        at, budget = self.enclosures(t, x, p), BOXES if budget is None else budget
        # boxes that were discarded before mostly are so again: any that cover the whole will do
        todo = self.box[None] if before is None or not before.proof else before.proof[1]
        todo = todo if len(todo) <= COVER else self.box[None]
        points, leaves, left, count = self._run(at, todo, [], budget, grow=True)
        if not points and not len(left):  # where h has values it is least somewhere
            raise SolveError(
                f"no y in the box satisfies the constraints (t = {np.asarray(t)}, "
                f"x = {np.asarray(x)})",
                expected="y with all g(t, x, y, p) <= 0",
                remedy="another start, other parameters, a larger box",
            )
        if count >= budget:
            raise BudgetError(
                f"the budget of {budget} boxes is used up: {len(points)} minimisers are found, "
                f"{len(left)} boxes are left",
                remedy=f"effort=SearchEffort(boxes={10 * budget}), a smaller box, an h whose "
                "minimisers are apart from each other",
            )
        return self._minimizers(at, points, leaves, left, count)

    def enclosures(
        self, t: npt.ArrayLike, x: npt.ArrayLike, p: npt.ArrayLike | Mapping[str, Any]
    ) -> Enclosures:
        """Return h and g at t, x and p, which are numbers or intervals."""
        first = self.functions[0]
        packed = first.shapes.pack(p) if isinstance(p, Mapping) else p
        return Enclosures(self.functions, self.box, first.inputs(t, x, packed))

    def unchanged(
        self,
        t: npt.ArrayLike,
        x: npt.ArrayLike,
        p: npt.ArrayLike | Mapping[str, Any],
        minimizers: Minimizers,
        along: Along | None = None,
    ) -> bool:
        """Whether the minimisers only moved, as ``Search.unchanged``; ``along`` is not used."""
        del along
        if not minimizers.proof:
            return False
        at = self.enclosures(t, x, p)
        points, leaves = minimizers.proof
        regions: list[Array] = []
        for point in points:
            shape = point.region
            if any(_meet(shape, other) for other in regions) or not Region(at, point.y).alone(
                shape
            ):
                return False
            regions.append(shape)
        budget = 2 * len(leaves) + 200
        _, _, left, count = self._run(at, leaves, regions, budget, grow=False)
        return not len(left) and count < budget

    # ---- branch and bound ------------------------------------------------------------------------

    def _run(
        self, at: Enclosures, todo: Array, regions: Sequence[Array], budget: int, *, grow: bool
    ) -> tuple[list[_Point], Array, Array, int]:
        """Return minimisers, boxes that were discarded, those left, and how many there were."""
        points: list[_Point] = []
        known, discarded, left = [*regions], list[Array](), list[Array]()
        count = 0
        stack = [*todo]
        width = WIDTH * (self.box[:, 1] - self.box[:, 0])
        while stack and count < budget:
            boxes = np.array(stack[-LANES:])
            del stack[-LANES:]
            count += len(boxes)
            # in a region with exactly one minimiser nothing else is to be found
            inside = _inside(boxes, known)
            discarded += [*boxes[inside]]
            boxes = boxes[~inside]
            if not len(boxes):
                continue
            first = at.first(boxes)
            # first order first: Hessians are dearer, and most boxes go without
            gone = first.infeasible | excluded(first)
            discarded += [*boxes[gone]]
            boxes, first = boxes[~gone], first[~gone]
            if not len(boxes):
                continue
            second = at.second(first)
            gone = second.infeasible | excluded(second)
            gone |= second_order_excluded(second, ~gone)
            discarded += [*boxes[gone]]
            boxes = boxes[~gone]
            for box in boxes:
                sizes = box[:, 1] - box[:, 0]
                if grow and self._turn(sizes) and not any(_meet(box, other) for other in known):
                    new = self._new(at, box, known)
                    if new is not None:
                        points.append(new)
                        known.append(new.region)
                        if _inside(box[None], known)[0]:
                            discarded.append(box)
                            continue
                # the side that is longest, in units of the least widths
                i = int(np.argmax(sizes / width))
                if sizes[i] <= width[i]:
                    left.append(box)
                    continue
                # not in the middle, where symmetric functions have their extrema
                middle = box[i, 0] + 0.4871 * sizes[i]
                for side in range(2):
                    half = box.copy()
                    half[i, 1 - side] = middle
                    stack.append(half)
        left += stack
        self.boxes = count
        shape = -1, *self.box.shape
        return points, np.reshape(discarded, shape), np.reshape(left, shape), count

    def _turn(self, sizes: Array) -> bool:
        """Whether to look for a minimiser near a box: every third time it has been halved."""
        parts = np.log2((self.box[:, 1] - self.box[:, 0]) / sizes)
        return bool(np.ptp(parts) < 0.5 and round(float(parts.mean())) % 3 == 0)

    def _new(self, at: Enclosures, box: Array, known: Sequence[Array]) -> _Point | None:
        """Return a minimiser near a box that is not known, with the region in which it is alone."""
        y = self._local(at, box.mean(axis=1))
        if y is None or any(((y >= r[:, 0]) & (y <= r[:, 1])).all() for r in known):
            return None
        region = Region(at, y)
        # from large regions to small ones: a large one spares most boxes around it
        for factor in 0.3 ** np.arange(14.0):
            shape = region.about(factor)
            if not any(_meet(shape, other) for other in known) and region.alone(shape):
                active, remark = self._active(at, y)
                return _Point(y, active, shape, remark)
        return None

    def _local(self, at: Enclosures, start: Array) -> Array | None:
        """Return the minimiser that sequential quadratic programming comes to from a point."""
        low, high = self.box.T

        last: list[Any] = [None, ()]

        def both(y: Array) -> tuple[Array, Array]:
            if last[0] != y.tobytes():
                last[:] = y.tobytes(), at.point(np.clip(y, low, high))
            return last[1]

        limits: dict[str, Any] = {
            "type": "ineq",
            "fun": lambda y: -both(y)[0][1:],
            "jac": lambda y: -both(y)[1][1:],
        }
        minimized: Any = minimize  # its types know no arrays of bounds
        outcome: Any = minimized(
            lambda y: both(y)[0][0],
            start,
            jac=lambda y: both(y)[1][0],
            method="SLSQP",
            bounds=self.box,
            constraints=limits,
            options={"ftol": 1e-14, "maxiter": 60},
        )
        y: Array = np.clip(np.asarray(outcome.x, dtype=float), low, high)
        # SLSQP stops beside bounds: what is so near is at them
        near = 1e-9 * (high - low)
        y = np.asarray(np.where(y - low <= near, low, np.where(high - y <= near, high, y)))
        values, _ = at.point(y)
        scale = 1e-6 * (1.0 + np.abs(values[1:]))
        return y if np.isfinite(values).all() and (values[1:] <= scale).all() else None

    def _active(self, at: Enclosures, y: Array) -> tuple[npt.NDArray[np.int8], str]:
        """Return which constraints are active, and a remark if that is not clear."""
        values, gradients = at.point(y)
        n, m = len(y), len(values) - 1
        width = self.box[:, 1] - self.box[:, 0]
        slopes = np.abs(gradients[1:]) @ width
        near = np.abs(values[1:]) <= NEAR * slopes
        side = np.where(y == self.box[:, 0], -1, np.where(y == self.box[:, 1], 1, 0))
        rows = [side[i] * np.eye(n)[i] for i in np.flatnonzero(side)]
        rows += [*gradients[1:][near]]
        active, remark = np.concatenate([side, np.zeros(m)]).astype(np.int8), ""
        if rows:
            least_squares: Any = np.linalg.lstsq
            # Multipliers from h_y + sum l g_y = 0: positive ones hold the point, in units of what
            # a move across the box would cost.
            solved: Any = least_squares(np.array(rows).T, -gradients[0], rcond=None)
            pushes: Array = np.asarray(solved[0]) * (np.abs(rows) @ width)
            weak: npt.NDArray[np.bool_] = pushes <= NEAR * max(
                np.abs(gradients[0]) @ width, np.abs(pushes).max()
            )
            places = [*np.flatnonzero(side), *(n + np.flatnonzero(near))]
            for k, is_weak in zip(places, weak, strict=True):
                active[k] = active[k] if k < n else 1
                if is_weak:
                    active[k], remark = 0, BOUND_UNDECIDED
        return active, remark

    def _minimizers(
        self, at: Enclosures, points: Sequence[_Point], leaves: Array, left: Array, count: int
    ) -> Minimizers:
        n, m = len(self.box), len(self.functions) - 1
        ordered = sorted(points, key=lambda point: tuple(point.y))
        values = np.array([at.point(point.y)[0][0] for point in ordered])
        sure = np.array([not point.remark for point in ordered], dtype=bool)
        return Minimizers(
            np.array([point.y for point in ordered]).reshape(-1, n),
            values,
            np.array([point.active for point in ordered], dtype=np.int8).reshape(-1, n + m),
            np.array([point.region for point in ordered]).reshape(-1, n, 2),
            sure,
            tuple(point.remark for point in ordered),
            np.stack([values, values], axis=1),
            left,
            (_NARROW,) * len(left),
            "all",
            count,
            () if len(left) else (ordered, leaves),
        )


def _inside(boxes: Array, regions: Sequence[Array]) -> npt.NDArray[np.bool_]:
    """Return which boxes are inside of one of some regions."""
    inside = np.zeros(len(boxes), dtype=bool)
    for region in regions:
        held = (boxes[..., 0] >= region[:, 0]) & (boxes[..., 1] <= region[:, 1])
        inside |= held.all(axis=1)
    return inside


def _meet(box: Array, other: Array) -> bool:
    return bool(((box[:, 0] <= other[:, 1]) & (box[:, 1] >= other[:, 0])).all())
