"""Error messages: what happened, what was expected, what to try."""

import linecache

import numpy as np
import pytest

import daeosens as ds
from daeosens import DaeosensError, InputError, SolveError, UnsupportedError
from daeosens.errors import KinkWarning, NotFiniteError, OptionError, nearest, together


@pytest.mark.parametrize("kind", [DaeosensError, InputError, OptionError, SolveError])
def test_message_has_three_lines(kind):
    error = kind("dt = -1", expected="dt > 0", remedy="dt=0.1")
    assert str(error) == "dt = -1\n  expected: dt > 0\n  try: dt=0.1"


def test_lines_that_say_nothing_are_left_out():
    assert str(SolveError("stopped")) == "stopped"
    assert str(SolveError("stopped", remedy="dt < 1")) == "stopped\n  try: dt < 1"
    assert str(SolveError("stopped", expected="t = 1")) == "stopped\n  expected: t = 1"


def test_detail_goes_behind_what_happened_and_keeps_the_kind():
    error = NotFiniteError("log(-1) in log(-1)\n  in 'rhs'", expected="p > 0", remedy="bounds")
    more = error.with_detail("at t = 2")
    assert type(more) is NotFiniteError
    assert str(more) == (
        "log(-1) in log(-1): at t = 2\n  in 'rhs'\n  expected: p > 0\n  try: bounds"
    )
    assert more.what == "log(-1) in log(-1): at t = 2"
    assert more.in_one_line() == f"{more.what}; in 'rhs'; expected: p > 0; try: bounds"


def test_kinds_can_be_caught_together_and_apart():
    assert issubclass(OptionError, InputError)
    for kind in (InputError, SolveError, UnsupportedError):
        assert issubclass(kind, DaeosensError)
    assert not issubclass(UnsupportedError, InputError)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("beular", '"beuler"'),
        ("c", '"cn"'),
        ("BEULER", '"beuler"'),
        ("cm", '"cn"'),
        ("bfgs", ""),
        ("", ""),
        ("xyz", ""),
    ],
)
def test_nearest_names_what_was_meant(word, expected):
    assert nearest(word, ("beuler", "cn")) == expected


def test_several_complaints_become_one_error():
    error = together(["a: missing", "b = nan"], heading="config.toml")
    assert isinstance(error, InputError)
    assert str(error) == "config.toml: 2 problems\n  - a: missing\n  - b = nan"
    assert str(together(["a"], heading="x")) == "x: 1 problem\n  - a"


def line_of(record):
    return linecache.getline(record.filename, record.lineno).strip()


def test_warnings_are_told_at_the_line_of_the_user():
    """However many functions of this package, and of NumPy's guards, lie between."""
    kinked = ds.ODE(lambda t, u, p: -p[0] * np.maximum(u, 0.5), 1, ["rate"])
    run = ds.solve(kinked, [1.0], [1.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.1))
    with pytest.warns(KinkWarning) as told:
        ds.hessian_product(run, ds.Terminal(lambda t, u, p: u[0]), [1.0], [0.0])
    assert line_of(told[0]).startswith("ds.hessian_product(run, ds.Terminal(")
    control = ds.problem.PiecewiseLinear([0.0, 0.5])

    def beyond(t, u, p):
        return control(t, p) + 0.0 * u

    with pytest.warns(UserWarning, match="beyond its knots") as told:
        ds.solve(ds.ODE(beyond, 1, 2), [1.0], [1.0, 2.0], ds.Stepping((0.0, 1.0), "rk4", dt=0.5))
    assert line_of(told[0]) == "return control(t, p) + 0.0 * u"


PROGRAM = """
import sys, warnings
from mpi4py import MPI
import numpy as np
import daeosens as ds
from daeosens.errors import NoiseWarning

rng = np.random.default_rng(0)
times = np.linspace(0.1, 2.0, 40)
data = np.exp(-times)[:, None] + rng.standard_normal((40, 2)) * [0.001, 0.1]
both = ds.ODE(lambda t, u, p: -p[0] * u, 2, ["rate"])
rate = ds.Parameters({"rate": ds.Parameter(0.8)}, [1.0, 1.0])
stepping = ds.Stepping((0.0, 2.0), "rk4", dt=0.1)
comm = MPI.COMM_WORLD

def fitted():
    ds.fit(both, data, rate, stepping, times=times, comm=comm)

fitted()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    fitted()
assert [entry.category for entry in told] == [NoiseWarning]
warnings.simplefilter("error")
try:
    fitted()
except NoiseWarning:
    told = "raised"
assert comm.allgather(told) == ["raised"] * comm.size
"""


@pytest.mark.slow
def test_what_all_ranks_have_found_is_printed_once(run_mpi, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    job = run_mpi(2, [tmp_path / "program.py"])
    assert job.returncode == 0, job.stderr
    assert job.stderr.count("NoiseWarning: one noise level for all columns") == 1
    alone = run_mpi(1, [tmp_path / "program.py"])
    assert alone.stderr.count("NoiseWarning: one noise level for all columns") == 1
