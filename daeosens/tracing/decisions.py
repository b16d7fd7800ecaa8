"""What decides in a graph of scalars: comparisons, abs, maximum, and rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.petsc.vectors import Array
from daeosens.problem.branches import Along, Decided
from daeosens.tracing.casadi import casadi
from daeosens.tracing.ufuncs import STEP

_COMPARED = frozenset(getattr(casadi, f"OP_{name}") for name in ("LT", "LE", "FMIN", "FMAX"))
_SIDED = frozenset(getattr(casadi, f"OP_{name}") for name in ("FABS", "SIGN"))
_ROUNDED = frozenset(getattr(casadi, f"OP_{name}") for name in ("FLOOR", "CEIL"))
_REMAINDERS: dict[int, Callable[[Any], Any]] = {
    casadi.OP_FMOD: lambda x: casadi.sign(x) * casadi.floor(casadi.fabs(x)),
    casadi.OP_REMAINDER: lambda x: casadi.floor(x + 0.5),
}


def decisions(inputs: Sequence[Any], value: Any) -> list[tuple[Any, bool]]:
    """Return what decides in a graph, and whether as a whole number; of differences the sign does.

    Parameters
    ----------
    inputs : sequence of casadi.SX
        All symbols of the graph.
    value : casadi.SX
        The graph.

    Returns
    -------
    list of (casadi.SX, bool)
        In terms of the inputs.  What depends on none of them decides nothing.
    """
    # the graph is evaluated once more, symbol by symbol; on the way each operation that decides is
    # noted with what it decides by
    function = casadi.Function("graph", list(inputs), [value], {"cse": True})
    columns = [casadi.vec(casadi.densify(symbol)) for symbol in inputs]
    work: list[Any] = [None] * function.sz_w()
    decided: list[tuple[Any, bool]] = []
    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        read, written = function.instruction_input(k), function.instruction_output(k)
        if operation == casadi.OP_OUTPUT:
            continue
        if operation == casadi.OP_INPUT:
            result = columns[read[0]][read[1]]
        elif operation == casadi.OP_CONST:
            result = casadi.SX(function.instruction_constant(k))
        elif len(read) == 1:
            (x,) = (work[place] for place in read)
            result = casadi.SX.unary(operation, x)
            if operation in _SIDED:
                decided.append((x, False))
            elif operation in _ROUNDED and not _held(x):
                decided.append((result, True))
        else:
            x, y = (work[place] for place in read)
            result = casadi.SX.binary(operation, x, y)
            if operation in _COMPARED:
                # x < y changes sides where x - y changes its sign
                decided.append((x - y, False))
            elif operation in _REMAINDERS:
                decided.append((_REMAINDERS[operation](x / y), True))
        work[written[0]] = result
    return [entry for entry in decided if casadi.symvar(entry[0])]


def _held(x: Any) -> bool:
    """Return whether what is rounded is an exponent, in such small parts that nothing jumps."""
    if not x.is_op(casadi.OP_MUL):
        return False
    factors = (x.dep(number) for number in range(x.n_dep()))
    return any(factor.is_constant() and float(factor) == STEP for factor in factors)


def decided_along(inputs: Sequence[Any], value: Any, moving: Sequence[Any] | None = None) -> Along:
    """Return what evaluates all that decides in a graph of scalars of (t, u, p) at many points.

    By CasADi's interpreter, and made when it is first asked for: few runs have to be looked at.
    What depends on none of ``moving`` does not move; by default these are all inputs but the time.
    """

    @cache
    def made() -> tuple[Any, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        entries = decisions(inputs, value)
        columns = casadi.vertcat(*(entry for entry, _ in entries))
        whole = np.array([is_whole for _, is_whole in entries], dtype=bool)
        others = inputs[1:] if moving is None else moving
        moves = [casadi.depends_on(entry, casadi.veccat(*others)) for entry, _ in entries]
        function = casadi.Function("decisions", list(inputs), [columns])
        return function, whole, np.array(moves, dtype=bool)

    def along(t: Array, u: Array, p: Array) -> Decided:
        function, whole, moves = made()
        if not whole.size:
            return np.empty((len(t), 0)), whole, moves
        # columns are points, which CasADi takes one after the other
        return np.array(function(t[None, :], u.T, p), dtype=float).T, whole, moves

    return along
