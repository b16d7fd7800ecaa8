"""Graphs of scalars as tapes: instructions that C carries out on intervals, many boxes at a time.

An instruction works on vectors of boxes, so reading the tape costs nothing beside carrying it out,
and no model has to be compiled by itself.  Before, patterns are put together whose parts alone
would be too wide: ``where`` is the hull of what it chooses from and not the sum of two terms,
maxima are continuous, and ``x*x*x`` has the range of a cube.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from daeosens.errors import InputError
from daeosens.petsc.vectors import Array
from daeosens.tracing.casadi import casadi
from daeosens.tracing.compilation import load
from daeosens.tracing.daeo.interval_graph import Node, Nodes

UNDEFINED, BROKEN, EMPTY = 1, 2, 4
"""Flags of values in a box: perhaps not defined everywhere, or not continuous; defined nowhere."""

_NAMES = (
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "NEG",
    "EXP",
    "LOG",
    "POW",
    "SQRT",
    "SQ",
    "TWICE",
    "SIN",
    "COS",
    "TAN",
    "ASIN",
    "ACOS",
    "ATAN",
    "LT",
    "LE",
    "EQ",
    "NE",
    "NOT",
    "AND",
    "OR",
    "FLOOR",
    "CEIL",
    "FMOD",
    "FABS",
    "SIGN",
    "COPYSIGN",
    "IF_ELSE_ZERO",
    "ERF",
    "FMIN",
    "FMAX",
    "INV",
    "SINH",
    "COSH",
    "TANH",
    "ASINH",
    "ACOSH",
    "ATANH",
    "ATAN2",
    "LOG1P",
    "EXPM1",
    "LOG10",
    "HYPOT",
    "REMAINDER",
    "POW_WHOLE",
    "POW_REAL",
    "SELECT",
    "MINIMUM",
    "MAXIMUM",
)
_CODES = {name: number for number, name in enumerate(_NAMES)}
_OF_CASADI: dict[int, str] = {
    getattr(casadi, f"OP_{name}"): name for name in _NAMES if hasattr(casadi, f"OP_{name}")
}
_OF_CASADI[casadi.OP_CONSTPOW] = "POW"
_SOURCES = ("interval_arithmetic.c", "branch_and_bound.c")


class _Tape(ctypes.Structure):
    """``Tape`` of interval_arithmetic.c."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("values", "constants", "inputs", "outputs")),
        *((name, ctypes.c_int32) for name in ("first", "then")),
        *((name, ctypes.c_void_p) for name in ("constant", "input", "output", "code")),
    )


@dataclass(frozen=True)
class Tape:
    """A function of scalars as instructions on intervals.

    Attributes
    ----------
    code : array of int32 [k, 5]
        Operation, result, and arguments (numbers of values).
    constants : array [n_constants, 2]
        The first values.
    inputs, outputs : array of int32
        Values that are inputs (-1: not used) and outputs.
    first : int
        So many instructions do not depend on the inputs that vary.
    n_values : int
        How many values live at one time.
    """

    code: npt.NDArray[np.int32]
    constants: Array
    inputs: npt.NDArray[np.int32]
    outputs: npt.NDArray[np.int32]
    first: int
    n_values: int

    @cached_property
    def structure(self) -> ctypes.Structure:
        """The same for C; it points into the arrays of this object."""
        arrays = (self.constants, self.inputs, self.outputs, self.code)
        return _Tape(
            self.n_values,
            len(self.constants),
            len(self.inputs),
            len(self.outputs),
            self.first,
            len(self.code) - self.first,
            *(array.ctypes.data for array in arrays),
        )

    def __call__(self, boxes: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.uint8]]:
        """Return enclosures of the outputs over boxes.

        Parameters
        ----------
        boxes : array_like [B, n_inputs, 2]
            Lower and upper ends.

        Returns
        -------
        values : array [B, n_outputs, 2]
            Wherever the function is defined in the box, its value is between these.
        flags : array of uint8 [B, n_outputs]
            Sums of UNDEFINED, BROKEN and EMPTY.
        """
        contiguous = np.ascontiguousarray(boxes, dtype=float)
        if contiguous.ndim != 3 or contiguous.shape[1:] != (len(self.inputs), 2):
            raise InputError(
                f"boxes have the shape {contiguous.shape}", expected=f"(B, {len(self.inputs)}, 2)"
            )
        values = np.empty((len(contiguous), len(self.outputs), 2))
        flags = np.empty((len(contiguous), len(self.outputs)), dtype=np.uint8)
        structure = self.structure
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in (contiguous, values, flags)]
        count = ctypes.c_long(len(contiguous))
        library().evaluate_boxes(ctypes.byref(structure), count, *addresses)
        return values, flags


def make_tape(inputs: Sequence[Any], outputs: Sequence[Any], varying: Sequence[bool] = ()) -> Tape:
    """Return the tape of a graph of scalars.

    Parameters
    ----------
    inputs, outputs : sequence of casadi.SX
        Columns; all entries side by side are the inputs and outputs of the tape.
    varying : sequence of bool, optional
        Which entries of the inputs vary within one search; all if left out.

    Raises
    ------
    InputError
        An operation has no interval extension.
    """
    # cse: a part that occurs twice is evaluated once, and its interval is the same both times
    function = casadi.Function("graph", list(inputs), [casadi.vertcat(*outputs)], {"cse": True})
    sizes: list[Any] = [graph.numel() for graph in inputs]
    starts: Any = np.cumsum([0, *sizes])
    # CasADi reuses places of its work vector: ``work`` says which node stands in each just now
    nodes, work, results = Nodes(), [0] * function.sz_w(), [-1] * function.nnz_out(0)
    for k in range(function.n_instructions()):
        operation = function.instruction_id(k)
        read, written = function.instruction_input(k), function.instruction_output(k)
        if operation == casadi.OP_OUTPUT:
            results[written[1]] = work[read[0]]
        elif operation == casadi.OP_INPUT:
            work[written[0]] = nodes.put("INPUT", int(starts[read[0]]) + read[1])
        elif operation == casadi.OP_CONST:
            work[written[0]] = nodes.constant(function.instruction_constant(k))
        elif operation in (casadi.OP_ASSIGN, casadi.OP_LIFT):
            work[written[0]] = work[read[0]]
        elif operation in _OF_CASADI:
            places = [work[place] for place in read]
            work[written[0]] = nodes.operation(_OF_CASADI[operation], *places)
        else:
            raise InputError(
                f"{casadi.SX.unary(operation, casadi.SX.sym('x'))} has no interval extension",
                remedy="extension=..., your own interval extension of h and its derivatives",
            )
    # sparse outputs: what is not stored is 0
    zero = nodes.constant(0.0)
    pattern = function.sparsity_out(0)
    dense = [zero] * pattern.numel()
    for place, result in zip(pattern.find(), results, strict=True):
        dense[place] = result
    nodes.finish()
    return _allocated(nodes.nodes, dense, int(starts[-1]), varying)


def _allocated(
    nodes: list[Node], outputs: list[int], n_inputs: int, varying: Sequence[bool]
) -> Tape:
    """Order what is needed, what does not vary first, and let values share places."""
    moves = list(varying) or [True] * n_inputs
    # backwards from the outputs: simplified patterns leave nodes that nothing asks for
    needed, todo = set[int](), list(outputs)
    while todo:
        number = todo.pop()
        if number not in needed:
            needed.add(number)
            if nodes[number][0] not in ("INPUT", "CONST"):
                todo += nodes[number][1:]
    # a search goes over many boxes of y at one (t, x, p): what these alone decide is done once, in
    # the instructions before ``first``
    varies: dict[int, bool] = {}
    for number in sorted(needed):
        kind, *places = nodes[number]
        if kind == "INPUT":
            varies[number] = moves[places[0]]
        else:
            varies[number] = kind != "CONST" and any(varies[place] for place in places)
    order = sorted(needed)
    fixed = [number for number in order if nodes[number][0] in ("INPUT", "CONST")]
    constants = [number for number in fixed if nodes[number][0] == "CONST"]
    operations = [number for number in order if number not in {*fixed}]
    before = [number for number in operations if not varies[number]]
    after = [number for number in operations if varies[number]]
    place = {number: k for k, number in enumerate(constants)}
    for number in [*fixed, *before]:
        place.setdefault(number, len(place))
    # register allocation by last use: a place is free once the last instruction that reads it is
    # over
    last = {argument: k for k, number in enumerate(after) for argument in nodes[number][1:]}
    last |= dict.fromkeys(outputs, len(after))
    count, free = len(place), list[int]()
    kept = {*place}
    for k, number in enumerate(after):
        if free:
            place[number] = free.pop()
        else:
            place[number], count = count, count + 1
        # a result never takes the place of an argument of its own operation
        free += {
            place[argument]
            for argument in nodes[number][1:]
            if argument not in kept and last[argument] == k
        }
    code = np.zeros((len(operations), 5), dtype=np.int32)
    for row, number in zip(code, [*before, *after], strict=True):
        kind, *arguments = nodes[number]
        row[:2] = _CODES[kind], place[number]
        row[2 : 2 + len(arguments)] = [place[argument] for argument in arguments]
    inputs = np.full(n_inputs, -1, dtype=np.int32)
    for number in fixed:
        if nodes[number][0] == "INPUT":
            inputs[nodes[number][1]] = place[number]
    values = [[float(end) for end in nodes[number][1:]] for number in constants]
    return Tape(
        code,
        np.array(values, dtype=float).reshape(-1, 2),
        inputs,
        np.array([place[number] for number in outputs], dtype=np.int32),
        len(before),
        count,
    )


@cache
def library() -> ctypes.CDLL:
    """Return the compiled interval arithmetic and branch and bound.

    Raises
    ------
    CompilerError
        There is no C compiler.
    """
    folder = Path(__file__).parent
    codes = ", ".join(f"OP_{name}" for name in _NAMES)
    parts = [(folder / name).read_text() for name in _SOURCES]
    made = load("\n".join([f"enum {{ {codes} }};", *parts]), MPI.COMM_SELF)
    made.evaluate_boxes.restype = None
    made.search_new.restype = ctypes.c_void_p
    made.search_count.restype = made.search_boxes.restype = ctypes.c_long
    made.search_best.restype = ctypes.c_double
    return made
