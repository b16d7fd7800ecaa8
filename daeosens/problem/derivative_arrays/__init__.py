"""Arrays that carry derivatives through NumPy: what missing derivatives of callbacks come from.

A ``DerivativeArray`` is a value [...] with its slopes [..., K] along K directions (forward-mode
automatic differentiation).  Values and slopes may be such arrays themselves, with one direction
more: that gives second derivatives along it.  Every rule of a function is written with NumPy's
functions on values and slopes, so that it holds for derivatives of derivatives as well.

It is no subclass of ``ndarray``, so nothing in C can take its value and leave the slopes behind:
what would drop them raises ``DerivativeLostError``, which names the line.

At kinks the derivative is the one towards larger arguments: that of ``abs`` at 0 is 1, that of
``maximum(x, 0)`` 1, that of ``minimum(x, 0)`` 0; of two equal arguments that vary ``maximum`` takes
the first and ``minimum`` the second.  ``norm`` and ``hypot`` have the slope 0 where they are 0.
Steps (``floor``, ``sign``, ``heaviside``, comparisons) are constant.

Values and slopes may also be ``PointArray``s, which stand for an array at each of many points and
look like one: so a callback that is written for one point is evaluated at all of them at once.
Slopes may be ``RecordedSlopes``: what is done to them, all of it linear, is transposed afterwards,
which gives products with the transposed Jacobian (reverse mode).

Read first: ``arrays`` (the type), ``evaluation`` (of a callback), ``rules`` (how functions have
theirs).
"""

from daeosens.problem.derivative_arrays import (
    elementwise,
    linear_algebra,
    movement,
    products,
    reductions,
    special_functions,
    steps,
    tables,
)
from daeosens.problem.derivative_arrays.arrays import (
    UFUNCS,
    DerivativeArray,
    as_array,
    held,
    note_whole,
    primal,
)
from daeosens.problem.derivative_arrays.callback_at_work import (
    DerivativeLostError,
    is_users,
    line_of,
    line_of_error,
    users_frame,
    users_trace,
)
from daeosens.problem.derivative_arrays.evaluation import (
    MATHEMATICAL,
    branches,
    call_at,
    denominators,
    evaluate,
    many_evaluations,
    numpy_of_math,
)
from daeosens.problem.derivative_arrays.imported_names import Replacements, put_back
from daeosens.problem.derivative_arrays.points import PointArray, WaysDifferError
from daeosens.problem.derivative_arrays.recorded_slopes import Record

RULES = (
    elementwise,
    special_functions,
    steps,
    movement,
    reductions,
    products,
    linear_algebra,
    tables,
)
"""The modules that hold the rules of functions."""

__all__ = [
    "MATHEMATICAL",
    "RULES",
    "UFUNCS",
    "DerivativeArray",
    "DerivativeLostError",
    "PointArray",
    "Record",
    "Replacements",
    "WaysDifferError",
    "as_array",
    "branches",
    "call_at",
    "denominators",
    "evaluate",
    "held",
    "is_users",
    "line_of",
    "line_of_error",
    "many_evaluations",
    "note_whole",
    "numpy_of_math",
    "primal",
    "put_back",
    "users_frame",
    "users_trace",
]
