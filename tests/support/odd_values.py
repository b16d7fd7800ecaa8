"""Values that are hardly ever right: what users pass by mistake, by name."""

import datetime as dt
import decimal
import fractions
import math
from pathlib import Path

import numpy as np
import pandas as pd
from mpi4py import MPI
from petsc4py import PETSc
from scipy import sparse

import daeosens as ds


def vec(values):
    """A vector of one rank."""
    return PETSc.Vec().createWithArray(np.array(values), comm=PETSc.COMM_SELF)


def read_only(values):
    """An array that refuses to be written to."""
    array = np.array(values)
    array.setflags(write=False)
    return array


def circle():
    """A list that holds itself."""
    values: list = []
    values.append(values)
    return values


def dense():
    """A matrix of PETSc."""
    matrix = PETSc.Mat().createDense((2, 2), comm=PETSc.COMM_SELF)
    matrix.setUp()
    return matrix


class Anything:
    """An object without any meaning here."""


MASKED = np.ma.masked_array([1.0, 2.0], mask=[True, False])

ODD = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "0": lambda: 0,
    "-1": lambda: -1,
    "1": lambda: 1,
    "2": lambda: 2,
    "3": lambda: 3,
    "2**31": lambda: 2**31,
    "2**31 - 1": lambda: 2**31 - 1,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "0.0": lambda: 0.0,
    "-1.0": lambda: -1.0,
    "0.5": lambda: 0.5,
    "1e-320": lambda: 1e-320,
    "1e308": lambda: 1e308,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "longdouble": lambda: np.longdouble(0.5),
    "longdouble nan": lambda: np.longdouble("nan"),
    "longdouble beyond floats": lambda: np.longdouble("1e4000"),
    "float32": lambda: np.float32(0.5),
    "int64": lambda: np.int64(1),
    "uint8": lambda: np.uint8(1),
    "bool_": lambda: np.bool_(True),
    "Fraction": lambda: fractions.Fraction(1, 2),
    "Decimal": lambda: decimal.Decimal("0.5"),
    "complex": lambda: 1.0 + 1.0j,
    "complex128": lambda: np.complex128(1.0),
    "text": lambda: "text",
    "empty text": lambda: "",
    "rate": lambda: "rate",
    "digits": lambda: "1.0",
    "str_": lambda: np.str_("rate"),
    "NUL": lambda: "a\0b",
    "bytes": lambda: b"rate",
    "[]": list,
    "()": lambda: (),
    "[1.0]": lambda: [1.0],
    "[0]": lambda: [0],
    "[1.0, 2.0]": lambda: [1.0, 2.0],
    "(2.0, 1.0)": lambda: (2.0, 1.0),
    "(0, 1)": lambda: (0, 1),
    "[[1.0]]": lambda: [[1.0]],
    "uneven": lambda: [[1.0], [1.0, 2.0]],
    "[None]": lambda: [None],
    "[nan]": lambda: [math.nan],
    "[10**400]": lambda: [10**400],
    '["rate"]': lambda: ["rate"],
    '["a", "a"]': lambda: ["a", "a"],
    '["", "b"]': lambda: ["", "b"],
    "[[]]": lambda: [[]],
    "circle": circle,
    "{}": dict,
    "{rate: None}": lambda: {"rate": None},
    "{rate: 0.5}": lambda: {"rate": 0.5},
    "{rate: text}": lambda: {"rate": "text"},
    "{other: 1.0}": lambda: {"other": 1.0},
    "{1: 2}": lambda: {1: 2},
    "{None: []}": lambda: {None: []},
    "{rate: array}": lambda: {"rate": np.ones(2)},
    "set": lambda: {1.0},
    "frozenset": lambda: frozenset(["rate"]),
    "range": lambda: range(2),
    "generator": lambda: (k for k in range(2)),
    "iterator of nothing": lambda: iter(()),
    "array [0]": lambda: np.empty(0),
    "array [0, 3]": lambda: np.empty((0, 3)),
    "array [1]": lambda: np.array([0.5]),
    "array [2]": lambda: np.array([0.5, 1.0]),
    "array [3]": lambda: np.ones(3),
    "array [2, 2]": lambda: np.ones((2, 2)),
    "array [1, 1, 1]": lambda: np.ones((1, 1, 1)),
    "array []": lambda: np.array(0.5),
    "array nan": lambda: np.array([0.5, math.nan]),
    "array inf": lambda: np.array([math.inf]),
    "array of words": lambda: np.array(["rate", "b"]),
    "array of None": lambda: np.array([None, None]),
    "array of objects": lambda: np.array([0.5, "x", Anything()], dtype=object),
    "array of floats as objects": lambda: np.array([0.5], dtype=object),
    "array complex": lambda: np.array([1.0j]),
    "array of integers": lambda: np.array([1, 2]),
    "array of bool": lambda: np.array([True]),
    "array float32": lambda: np.array([0.5], dtype=np.float32),
    "array longdouble": lambda: np.array([0.5], dtype=np.longdouble),
    "array big-endian": lambda: np.array([0.5], dtype=">f8"),
    "array strided": lambda: np.ones(6)[::3],
    "array read-only": lambda: read_only([0.5]),
    "array of datetime64": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "array of timedelta64": lambda: np.array([1], dtype="timedelta64[s]"),
    "structured array": lambda: np.zeros(2, dtype=[("time", float), ("mass", float)]),
    "masked array": lambda: MASKED,
    "masked": lambda: np.ma.masked,
    "sparse": lambda: sparse.csr_array(np.eye(2)),
    "sparse empty": lambda: sparse.csr_array((1, 1)),
    "Series": lambda: pd.Series([0.5]),
    "Series by name": lambda: pd.Series({"rate": 0.5}),
    "DataFrame": lambda: pd.DataFrame({"time": [0.5, 1.0], "mass": [0.5, math.nan]}),
    "DataFrame of nothing": pd.DataFrame,
    "NA": lambda: pd.NA,
    "NaT": lambda: pd.NaT,
    "datetime": lambda: dt.datetime(2020, 1, 1),
    "datetime64": lambda: np.datetime64("2020-01-01"),
    "timedelta64": lambda: np.timedelta64(1, "s"),
    "slice": lambda: slice(None),
    "Ellipsis": lambda: ...,
    "object": Anything,
    "class": lambda: Anything,
    "int": lambda: int,
    "module": lambda: math,
    "Path": lambda: Path("nowhere") / "at all",
    "Vec [1]": lambda: vec([0.5]),
    "Vec [2]": lambda: vec([0.5, 1.0]),
    "Vec nan": lambda: vec([math.nan]),
    "Vec without a type": PETSc.Vec,
    "Mat": dense,
    "MPI.COMM_SELF": lambda: MPI.COMM_SELF,
    "PETSc.COMM_SELF": lambda: PETSc.COMM_SELF,
    "stepping": lambda: ds.Stepping((0.0, 1.0), "rk4", dt=0.1),
    "stepping, adaptive": lambda: ds.Stepping((0.0, 1.0), rtol=1e-4),
    "stepping elsewhere": lambda: ds.Stepping((5.0, 6.0), "cn", dt=0.5),
    "event": lambda: ds.Event(0.5),
    "parameter": lambda: ds.Parameter(0.5),
    "terminal": lambda: ds.Terminal(lambda *_: 1.0),
    "problem": lambda: ds.ODE(lambda t, u, p: -u, size=1),
    "problem of two": lambda: ds.ODE(lambda t, u, p: -u, size=2),
    "returns None": lambda: lambda *_: None,
    "returns nan": lambda: lambda *_: math.nan,
    "returns 1": lambda: lambda *_: 1.0,
    "returns text": lambda: lambda *_: "text",
    "returns complex": lambda: lambda *_: 1.0j,
    "returns True": lambda: lambda *_: True,
    "returns []": lambda: lambda *_: [],
    "returns [1.0]": lambda: lambda *_: [1.0],
    "returns [None]": lambda: lambda *_: [None],
    "returns uneven": lambda: lambda *_: [[1.0], [1.0, 2.0]],
    "returns ones [3]": lambda: lambda *_: np.ones(3),
    "returns ones [2, 2]": lambda: lambda *_: np.ones((2, 2)),
    "returns [nan]": lambda: lambda *_: np.array([math.nan]),
    "returns [inf]": lambda: lambda *_: np.array([math.inf]),
    "returns longdouble": lambda: lambda *_: np.ones(1, dtype=np.longdouble),
    "returns a tuple": lambda: lambda *_: (1.0, 2.0),
    "returns a mapping": lambda: lambda *_: {"rate": 1.0},
    "returns itself": lambda: Anything,
    "returns sparse": lambda: lambda *_: sparse.csr_array(np.eye(1)),
    "returns what it gets": lambda: lambda *arguments: arguments[-1],
    "takes nothing": lambda: lambda: 1.0,
    "len": lambda: len,
}
