"""Search for all minimisers of h(t, x, y, p) over a box of y, or the lowest, with proof."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import BudgetError, DaeosensError, InputError
from daeosens.petsc.vectors import Array
from daeosens.tracing.daeo.intervals import Along, IntervalFunction
from daeosens.tracing.daeo.minimizers import (
    BOUND_UNDECIDED,
    DEGENERATE,
    Minimizers,
    box_text,
    row_text,
)
from daeosens.tracing.daeo.tape import library

BOXES = 1_000_000
"""So many boxes are looked at by default."""
WIDTH = 1e-9
"""Boxes are not bisected below so many parts of the whole box, by default."""


_REASONS = {
    1: DEGENERATE,
    2: "h or its gradient is not continuous there",
    3: BOUND_UNDECIDED,
    4: "h cannot be shown to be finite there",
    5: "the budget of boxes was used up before",
}
_COMPLETE, _BUDGET, _NOT_FINITE, _MEMORY = 0, 1, 2, 4
_LEFT = 5

_Callback = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_int, *([ctypes.POINTER(ctypes.c_double)] * 2), ctypes.c_void_p
)


class Search:
    """Branch and bound for the minimisers of h over a box, ready to be used many times.

    Interval Newton steps prove that a box has exactly one minimiser; where no component of the
    gradient vanishes, a curvature is negative, or h is too large, there is none.  On the surface
    of the box minimisers are those of its faces which the gradient holds there.  All of it runs in
    C on many boxes at a time.  For n_y up to about ten.

    Parameters
    ----------
    functions : IntervalFunction
        Of ``interval_function``.
    box : array_like [n_y, 2]
        Lower and upper bounds of y.

    Raises
    ------
    InputError
        A bound that is not finite, or not above the lower one.
    CompilerError
        There is no C compiler.

    Source
    ------
    Neumaier, Interval Methods for Systems of Equations, 1990; Hansen and Walster, Global
    Optimization Using Interval Analysis, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from daeosens.tracing.daeo.intervals import interval_function
    >>> from daeosens.tracing.daeo.search import Search
    >>> def h(t, x, y, p):
    ...     return (x[0] - y[0]) ** 2 + np.sin(5.0 * y[0])
    >>> search = Search(interval_function(h, n_x=1, n_y=1), box=[[-20.0, 20.0]])
    >>> minimizers = search.find(0.0, [1.0])
    >>> minimizers.points[:, 0].round(6).tolist()
    [-1.33067, -0.212854, 0.946739, 2.107341, 3.234587]
    >>> minimizers.best, minimizers.complete
    (2, True)
    """

    def __init__(self, functions: IntervalFunction, box: npt.ArrayLike) -> None:
        self.functions = functions
        self.box = _admitted_box(box, functions.n_y)
        low, high, along = functions.low, functions.high, functions.along
        self._raised: list[BaseException] = []
        self._kept: tuple[Any, ...] = ()
        arguments: tuple[Any, ...]
        if low is not None and high is not None and along is not None:
            self._kept = (low.structure, high.structure, along.structure, low, high, along)
            arguments = (*(ctypes.byref(tape) for tape in self._kept[:3]), None)
        else:
            self._kept = (_Callback(self._called),)
            arguments = (None, None, None, self._kept[0])
        self._library = library()
        self._search = ctypes.c_void_p(
            self._library.search_new(
                *arguments,
                ctypes.c_int(functions.n_y),
                ctypes.c_int(functions.n_inputs),
                ctypes.c_int(1 + functions.n_x),
                _pointer(self.box),
            )
        )
        weakref.finalize(self, self._library.search_free, self._search)

    def find(
        self,
        t: npt.ArrayLike,
        x: npt.ArrayLike,
        p: npt.ArrayLike | Mapping[str, Any] = (),
        mode: str = "all",
        *,
        budget: int | None = None,
        width: npt.ArrayLike | None = None,
    ) -> Minimizers:
        """Find all minimisers, or the global one.

        Parameters
        ----------
        t : float
            Time.
        x : array_like [n_x]
            States.
        p : array_like [n_p] or mapping
            Parameters.
        mode : "all" or "global"
            All local minimisers, or those of the lowest value.
        budget : int, optional
            So many boxes may be looked at: 1 000 000.
        width : float or array_like [n_y], optional
            Boxes are not bisected below it: 1e-9 of the box.  Minimisers that are not degenerate
            are found to rounding in any case.

        Returns
        -------
        Minimizers
            With what could not be decided, if anything.

        Raises
        ------
        InputError
            h is not finite somewhere in the box, or cannot be shown to be; no minimiser could be
            shown; another shape.
        BudgetError
            The budget is used up; its ``minimizers`` is what was found until then.
        """
        if mode not in ("all", "global"):
            raise InputError(f"mode = {mode!r}", expected='"all" or "global"')
        budget = BOXES if budget is None else budget
        if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 1:
            raise InputError(
                f"budget = {budget!r}", expected="a whole number from 1", remedy="100000"
            )
        inputs = self.functions.inputs(t, x, self._packed(p))
        least = self._least_width(width)
        status = self._library.search_run(
            self._search,
            _pointer(inputs),
            _pointer(least),
            ctypes.c_int(mode == "global"),
            ctypes.c_long(int(budget)),
        )
        self._reraise()
        if status == _MEMORY:
            raise DaeosensError(
                "no memory is left for the boxes of a global search", remedy="a smaller budget"
            )
        undecided, _, notes = self._list(3)
        if status == _NOT_FINITE or (len(notes) and (notes[:, 0] == 4).any()):
            where = undecided[notes[:, 0] == 4][0]
            certain = "is not finite" if status == _NOT_FINITE else "cannot be shown to be finite"
            raise InputError(
                f"h {certain} at {_place(where)}{_at(t, x)}",
                expected="h finite everywhere in the box",
                remedy="a box that leaves it out; a guard inside, as np.log(np.where(c, y, 1.0))",
            )
        minimizers = self._minimizers(inputs, mode, undecided, notes)
        if status == _BUDGET:
            raise self._exhausted(minimizers, int(budget))
        if not len(minimizers):
            raise InputError(
                f"no minimiser of h could be shown in the box{_at(t, x)}: {minimizers}",
                expected="at least one minimiser, inside or at a bound",
                remedy="another box, or an h whose minimisers are apart from each other",
            )
        return minimizers

    @property
    def boxes(self) -> int:
        """How many boxes the last call of ``find`` or ``unchanged`` has looked at."""
        return self._library.search_boxes(self._search)

    def unchanged(
        self,
        t: npt.ArrayLike,
        x: npt.ArrayLike,
        p: npt.ArrayLike | Mapping[str, Any],
        minimizers: Minimizers,
        along: Along | None = None,
    ) -> bool:
        """Whether the minimisers only moved: proven for all t and x of intervals.

        Each stays alone in a region about it, with a positive definite Hessian and the same active
        bounds, or some that become active or inactive where the Hessian is so beside them as well;
        and everywhere else there is none, for every t and x.  So none vanished, emerged, or met
        another one (or, of the global one, was undercut).

        Parameters
        ----------
        t : array_like [2]
            The interval.
        x : array_like [n_x, 2]
            The intervals, about where ``minimizers`` were found.
        p : array_like [n_p] or [n_p, 2]
            Parameters, or intervals of them.
        minimizers : Minimizers
            Of ``find`` of this search.
        along : Along, optional
            How x goes through these intervals, if it is a path: more can be proven.

        Returns
        -------
        bool
            False also where it cannot be shown.
        """
        if not minimizers.complete or not minimizers.proof:
            return False
        if minimizers.mode == "global" and len(minimizers) > 1:
            return False
        points, regions, active, leaves, leaf_active = minimizers.proof
        inputs = self.functions.inputs(t, x, self._packed(p))
        path = self._path(inputs, along)
        status = self._library.search_check(
            self._search,
            _pointer(inputs),
            None if path is None else _pointer(path),
            _pointer(self._least_width(None)),
            ctypes.c_int(minimizers.mode == "global"),
            # the proof of a search is its leaves: the check goes over them again with intervals of
            # t and x
            ctypes.c_long(minimizers.boxes + 100),  # dearer than a search: no proof
            ctypes.c_long(len(points)),
            _pointer(points),
            _pointer(regions),
            _pointer(active),
            ctypes.c_long(len(leaves)),
            _pointer(leaves),
            _pointer(leaf_active),
        )
        self._reraise()
        return status == _COMPLETE

    def _path(self, inputs: Array, along: Along | None) -> Array | None:
        """Return times from the middle, all inputs there, and all with rates: [..., 2]."""
        if along is None or self.functions.along is None:
            return None
        middle, n_x = inputs.copy(), self.functions.n_x
        middle[0] = along.t
        slack = 4.0 * np.finfo(float).eps * np.abs(along.x)  # of rounding
        middle[1 : 1 + n_x] = np.stack([along.x - slack, along.x + slack], axis=1)
        return np.concatenate([[inputs[0] - along.t], middle, inputs, [[1.0, 1.0]], along.rates])

    # ---- what C gives back ---------------------------------------------------------------------

    def _list(self, number: int) -> tuple[Array, npt.NDArray[np.int8], Array]:
        count = self._library.search_count(self._search, number)
        n = self.functions.n_y
        boxes, numbers = np.empty((count, n, 2)), np.empty((count, 2))
        active = np.empty((count, n), dtype=np.int8)
        if count:
            arrays = (_pointer(boxes), _pointer(active), _pointer(numbers))
            self._library.search_copy(self._search, number, *arrays)
        return boxes, active, numbers

    def _minimizers(self, inputs: Array, mode: str, undecided: Array, notes: Array) -> Minimizers:
        # lists of C: 0 enclosures, 1 the regions in which each is the only one, 2 excluded leaves,
        # 3 undecided boxes
        enclosures, active, bounds = self._list(0)
        regions, _, _ = self._list(1)
        points = np.empty(enclosures.shape[:2])
        if len(points):
            self._library.search_points(self._search, _pointer(points))
        best = self._library.search_best(self._search)
        if mode == "global":
            # Points whose value surely exceeds the lowest upper bound are no global minimisers;
            # boxes neither.
            kept = bounds[:, 0] <= best
            enclosures, active, bounds = enclosures[kept], active[kept], bounds[kept]
            regions, points = regions[kept], points[kept]
            low = notes[:, 1] <= best
            undecided, notes = undecided[low], notes[low]
        certified, remarks = np.ones(len(points), dtype=bool), [""] * len(points)
        # Boxes left about one degenerate minimiser touch each other; together they are one place.
        clusters, reasons = _clusters(undecided, notes[:, 0].astype(int), self.box)
        shown = [
            reason != _LEFT and self._has_minimiser(inputs, k, clusters, enclosures)
            for k, reason in enumerate(reasons)
        ]
        if mode == "global" and not len(points) and len(clusters) == 1 and reasons[0] != _LEFT:
            shown = [True]  # somewhere h is lowest, and it is nowhere else
        shown_array = np.array(shown, dtype=bool)
        if shown_array.any():
            more = clusters[shown_array]
            at, about = self._lowest(inputs, more)
            # a box without width in y_i is part of a face of the whole box
            held = np.where(more[..., 0] == more[..., 1], np.where(at == self.box[:, 0], -1, 1), 0)
            points = np.concatenate([points, at])
            enclosures = np.concatenate([enclosures, more])
            active = np.concatenate([active, held.astype(np.int8)])
            bounds = np.concatenate([bounds, about])
            certified = np.concatenate([certified, np.zeros(len(more), dtype=bool)])
            remarks += [_REASONS[reason] for reason, has in zip(reasons, shown, strict=True) if has]
            clusters = clusters[~shown_array]
            reasons = [reason for reason, has in zip(reasons, shown, strict=True) if not has]
        # lexsort takes its last key first: by y[0], then y[1], ...
        order = np.lexsort(points.T[::-1]) if len(points) else np.empty(0, dtype=int)
        proof: tuple[Any, ...] = ()
        if certified.all() and not len(clusters):
            leaves, leaf_active, _ = self._list(2)
            if len(leaves) <= 200_000:
                proof = (points[order], regions[order], active[order], leaves, leaf_active)
        return Minimizers(
            points[order],
            self._values(inputs, points[order]),
            active[order],
            enclosures[order],
            certified[order],
            tuple(remarks[k] for k in order),
            bounds[order],
            clusters,
            tuple(_REASONS[reason] for reason in reasons),
            mode,
            self.boxes,
            proof,
        )

    def _rows(self, inputs: Array, boxes: Array) -> Array:
        rows = np.empty((len(boxes), *inputs.shape))
        rows[:] = inputs
        start = 1 + self.functions.n_x
        rows[:, start : start + self.functions.n_y] = boxes
        return rows

    def _values(self, inputs: Array, points: Array) -> Array:
        if not len(points):
            return np.empty(0)
        rows = self._rows(inputs, np.stack([points, points], axis=-1))
        return self.functions.enclose(1, rows)[0][:, 0].mean(axis=1)

    def _lowest(self, inputs: Array, boxes: Array) -> tuple[Array, Array]:
        """Return a point of each box where h is low, and bounds of h in the box."""
        middles = boxes.mean(axis=2)
        zeros = np.clip(0.0, boxes[..., 0], boxes[..., 1])
        # tried at the middle, at zeros, where kinks often are, and at two corners
        candidates = np.stack([middles, zeros, boxes[..., 0], boxes[..., 1]])
        values = np.stack([self._values(inputs, points) for points in candidates])
        chosen = np.argmin(values, axis=0)
        bounds = self.functions.enclose(1, self._rows(inputs, boxes))[0][:, 0]
        bounds[:, 1] = np.minimum(bounds[:, 1], values.min(axis=0))
        return candidates[chosen, np.arange(len(boxes))], bounds

    def _has_minimiser(self, inputs: Array, k: int, clusters: Array, enclosures: Array) -> bool:
        """Whether h is larger on the whole surface of a box about a cluster than inside."""
        cluster, n = clusters[k], len(self.box)
        at, _ = self._lowest(inputs, cluster[None])
        rows = self._rows(inputs, np.stack([at, at], axis=-1))
        # If h on the whole surface of a box is above h at one inner point, the lowest point of
        # the box is inside: a local minimiser, whatever h is like there.
        inside = self.functions.enclose(1, rows)[0][0, 0, 1]
        others = np.concatenate([np.delete(clusters, k, axis=0), enclosures])
        # ever larger boxes, until one has a surface that is high enough or meets another place
        for factor in 4.0 ** np.arange(1.0, 22.0):
            size = np.maximum(cluster[:, 1] - cluster[:, 0], 1e-15 * np.abs(at[0]) + 1e-300)
            about = np.stack(
                [cluster[:, 0] - factor * size, cluster[:, 1] + factor * size], axis=-1
            )
            about = np.stack(
                [np.maximum(about[:, 0], self.box[:, 0]), np.minimum(about[:, 1], self.box[:, 1])],
                axis=-1,
            )
            meets = (others[:, :, 0] <= about[:, 1]) & (others[:, :, 1] >= about[:, 0])
            # a larger box would hold another minimiser as well: nothing is shown for this one
            if meets.all(axis=1).any():
                return False
            sides: list[Array] = []
            for i in range(n):
                for end in range(2):
                    # sides on the whole box are bounds: no point lies beyond them
                    if about[i, end] != self.box[i, end]:
                        side = about.copy()
                        side[i] = about[i, end]
                        sides.append(side)
            if not sides:
                return True
            values, flags = self.functions.enclose(1, self._rows(inputs, np.array(sides)))
            if (values[:, 0, 0] > inside).all() and not (flags[:, 0] & 5).any():
                return True
        return False

    def _exhausted(self, minimizers: Minimizers, budget: int) -> BudgetError:
        boxes = minimizers.undecided
        left = [reason == _REASONS[_LEFT] for reason in minimizers.reasons]
        widths = (boxes[..., 1] - boxes[..., 0]) / (self.box[:, 1] - self.box[:, 0])
        largest = boxes[int(np.argmax(widths.max(axis=1)))] if len(boxes) else self.box
        error = BudgetError(
            f"the budget of {budget} boxes is used up: {len(minimizers)} minimisers are found, "
            f"{sum(left)} boxes are left, the largest of them {box_text(largest)}",
            remedy=f"budget={10 * budget} (of a DAEO effort=SearchEffort(boxes={10 * budget})), "
            "a smaller box, an h whose minimisers are apart from each other; error.minimizers is "
            "what was found",
        )
        error.minimizers = minimizers
        return error

    # ---- arguments ------------------------------------------------------------------------------

    def _packed(self, p: npt.ArrayLike | Mapping[str, Any]) -> npt.ArrayLike:
        return self.functions.shapes.pack(p) if isinstance(p, Mapping) else p

    def _least_width(self, width: npt.ArrayLike | None) -> Array:
        if width is None:
            return WIDTH * (self.box[:, 1] - self.box[:, 0])
        widths = np.array(np.broadcast_to(np.asarray(width, dtype=float), len(self.box)))
        if not (np.isfinite(widths).all() and (widths > 0).all()):
            raise InputError(f"width = {width!r}", expected="numbers above 0", remedy="1e-9")
        return widths

    def _called(self, level: int, count: int, boxes: Any, values: Any, flags: Any) -> None:
        """Enclose by the user's extension, called from C; what it raises is kept for Python."""
        n = self.functions.n_y
        size = 1 + n if level == 1 else n + n * (n + 1) // 2
        to = np.ctypeslib.as_array(values, (count, size, 2))
        marks = np.ctypeslib.as_array(
            ctypes.cast(flags, ctypes.POINTER(ctypes.c_uint8)), (count, size)
        )
        try:
            rows = np.ctypeslib.as_array(boxes, (count, self.functions.n_inputs, 2)).copy()
            to[:], marks[:] = self.functions.enclose(level, rows)
        except BaseException as error:  # noqa: BLE001 (raised again after C has returned)
            self._raised.append(error)
            to[:], marks[:] = 0.0, 5

    def _reraise(self) -> None:
        if self._raised:
            error, self._raised = self._raised[0], []
            raise error


def _admitted_box(box: npt.ArrayLike, n: int) -> Array:
    array = np.array(box, dtype=float)
    remedy = f"box={[[-1.0, 1.0]] * min(n, 3)}"
    if array.shape != (n, 2):
        raise InputError(f"box has the shape {array.shape}", expected=f"({n}, 2)", remedy=remedy)
    for i, (lower, upper) in enumerate(array):
        if not (np.isfinite(lower) and np.isfinite(upper)):
            raise InputError(
                f"box[{i}] = [{lower:g}, {upper:g}] is not bounded",
                expected="finite bounds of every y: a search cannot exclude what is not bounded",
                remedy="bounds that y cannot leave for reasons of the model, however wide",
            )
        if not lower < upper:
            raise InputError(
                f"box[{i}] = [{lower:g}, {upper:g}]",
                expected="the lower bound first, below the upper",
            )
    return array


def _clusters(boxes: Array, reasons: npt.NDArray[np.int_], whole: Array) -> tuple[Array, list[int]]:
    """Put boxes together that touch each other; those that the budget left stay as they are."""
    left = reasons == _LEFT
    hulls, why = list[Array](), list[int]()
    slack = 1e-12 * (whole[:, 1] - whole[:, 0])
    for box, reason in zip(boxes[~left], reasons[~left].tolist(), strict=True):
        merged, code = box, reason
        # the merged hull may touch others that neither part did
        while hulls:
            held = np.array(hulls)
            meets = (held[:, :, 0] <= merged[:, 1] + slack) & (
                held[:, :, 1] >= merged[:, 0] - slack
            )
            touching = np.flatnonzero(meets.all(axis=1))
            if not len(touching):
                break
            for k in touching[::-1]:
                other = hulls.pop(k)
                code = max(code, why.pop(k))
                merged = np.stack(
                    [np.minimum(merged[:, 0], other[:, 0]), np.maximum(merged[:, 1], other[:, 1])],
                    axis=-1,
                )
        hulls.append(merged)
        why.append(code)
    n = len(whole)
    together = np.array(hulls).reshape(-1, n, 2)
    return np.concatenate([together, boxes[left]]), [*why, *[_LEFT] * int(left.sum())]


def _pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _place(box: Array) -> str:
    one_point = bool((box[:, 0] == box[:, 1]).all())
    return f"y = {row_text(box[:, 0])}" if one_point else f"y in {box_text(box)}"


def _at(t: npt.ArrayLike, x: npt.ArrayLike) -> str:
    return f" (t = {np.asarray(t)}, x = {np.asarray(x)})"
