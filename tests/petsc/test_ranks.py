"""Ranks that do not wait for each other; test_mpi_failure.py shows what ends them."""

import signal
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from continuous_adjoint import continuous_adjoint
from continuous_tangent import continuous_forward
from finite_differences import finite_differences
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens.derivatives import gauss_newton_product
from daeosens.functional import InitialState, solve_batch
from daeosens.inverse import (
    Normal,
    covariance,
    laplace,
    matern,
    multistart,
    predict,
    profile,
    starting_points,
)
from daeosens.petsc.ranks import agree, install_abort_hook, patience
from daeosens.problem import Products
from daeosens.problem.grids import Grid
from daeosens.verify import duality


def test_no_hook_is_installed_on_one_rank():
    if MPI.COMM_WORLD.size == 1:
        before = sys.excepthook
        install_abort_hook()
        assert sys.excepthook is before


# ---- options that differ -------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """Compared by value."""

    first: float
    second: object


@dataclass(frozen=True, eq=False)
class Thing:
    """Compared by its address, which no other rank has."""

    data: int


@pytest.mark.mpi
def test_the_same_options_are_agreed_on(comm):
    """Whatever holds the numbers, in whatever order names come, wherever objects are."""
    several = [1.0, 2.0] if comm.rank else np.array([1.0, 2.0])
    names = ["a", "b"] if comm.rank else ["b", "a"]
    for ranks in (comm, PETSc.COMM_WORLD):
        agree(
            ranks,
            "adjoint",
            several=several,
            many=np.linspace(0.0, 1.0, 99),
            one=1.0 if comm.rank else np.float64(1.0),
            options=dict.fromkeys(names),
            numbers=Numbers(1.0, lambda: comm.rank),
            callback=lambda: comm.rank,
            thing=Thing(comm.rank),
            pair=(Thing(comm.rank), None),
        )


def test_ranks_that_are_alone_agree_on_anything(comm):
    agree(MPI.COMM_SELF, "adjoint", rank=comm.rank)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            lambda r: {"engine": "arrays" if r else "vectors"},
            "engine is 'vectors' on rank 0 and 'arrays'",
        ),
        (lambda r: {"t": 1.0 + 1e-15 * r}, r"t is 1\.0 on rank 0 and 1\.000000000000001 on rank 1"),
        (
            lambda r: {"numbers": Numbers(r, 1)},
            r"call: numbers\.first is 0 on rank 0 and 1 on",
        ),
        (
            lambda r: {"data": np.arange(2) + r},
            r"data is \[0, 1\] on rank 0 and \[1, 2\] on",
        ),
        (lambda r: {"u": None if r else Thing(1)}, "u is Thing on rank 0 and None on rank 1"),
        (
            lambda r: {"options": {"snes_rtol": 1e-8} if r else {}},
            r"options\['snes_rtol'\] is nothing on rank 0 and 1e-08 on rank 1",
        ),
        (
            lambda r: {"a": r, "b": 0, "c": r},
            "call: a is 0 on rank 0 .*; c is 0 on rank 0 and",
        ),
        (lambda r: {"a": [r] * 99}, r"a is \[(0, ){26}0\.\.\. on rank 0 and \[(1, ){26}1\.\.\. on"),
        (
            lambda r: {"data": np.arange(99.0) + r},
            "data is 99 numbers of checksum [0-9a-f]{8} on rank 0 and 99 numbers of checksum",
        ),
        (lambda r: {"t": range(r + 1)}, r"t is \[0\] on rank 0 and \[0, 1\] on rank 1"),
    ],
)
def test_other_options_on_some_rank_are_an_error_on_all(comm, options, message):
    with pytest.raises(ds.InputError, match=message) as raised:
        agree(comm, "call", **options(comm.rank))
    assert "try: comm.bcast" in str(raised.value)
    assert len(set(comm.allgather(str(raised.value)))) == 1


@pytest.mark.mpi(min_size=2)
def test_other_calls_on_some_rank_are_an_error_on_all(comm):
    name = "tangents" if comm.rank else "adjoint"
    with pytest.raises(ds.InputError, match="the call is adjoint on rank 0 and tangents on rank 1"):
        agree(comm, name, **({} if comm.rank else {"engine": "vectors"}))


# ---- calls that ask for it -----------------------------------------------------------------------

STEPPING = ds.Stepping((0.0, 1.0), "rk4", dt=0.25)
COST = ds.Terminal(lambda t, u, p: float(u.norm()), gradient_u=lambda t, u, p, out: u.copy(out))


def decay(comm):
    state = PETSc.Vec().createMPI(6, comm=comm)
    state.set(1.0)

    def times(t, u, p, du, out):
        du.copy(out)
        out.scale(-p[0])

    return ds.ODE(
        lambda t, u, p, out: times(t, u, p, u, out),
        state=state,
        parameters=["k"],
        jacobian=Products(times, times),
    ), state


def run_of(comm, stepping=STEPPING, **keywords):
    problem, state = decay(comm)
    return ds.solve(problem, state, [1.0], stepping, **keywords)


def reduced_of(comm, *, cost=COST, stepping=STEPPING, control=None, **keywords):
    problem, state = decay(comm)
    control = ds.Parameters({"k": ds.Parameter(1.0)}, state) if control is None else control(state)
    return ds.Reduced(problem, cost, stepping, control, **keywords)


def measured(odd=0, count=2, *, control=None, stepping=0.25):
    """Return what ``fit`` takes: other data where it is ``odd``."""
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["k"])
    moments = np.linspace(0.5, 1.0, count)
    data = {"t": moments, "u": np.linspace(0.6, 0.4 + 0.1 * odd, count)}
    control = ds.Parameters({"k": ds.Parameter(1.0) if control is None else control}, [1.0])
    return problem, data, control, ds.Stepping((0.0, 1.0), "rk4", dt=stepping)


def grid_and_mean(comm):
    grid = Grid(((0.0, 1.0), (0.0, 1.0)), (6, 6), comm=PETSc.Comm(comm))
    return grid, grid.create_vec()


APART = {
    "solve: petsc_trajectory": (
        lambda comm, odd: run_of(comm, petsc_trajectory="memory" if odd else None),
        "solve: petsc_trajectory is None on rank 0 and 'memory' on rank 1",
    ),
    "solve: an unknown checkpoint": (
        lambda comm, odd: run_of(comm, checkpoint="none" if odd else "states"),
        "checkpoint is 'states' on rank 0 and 'none' on rank 1",
    ),
    "solve: method": (
        lambda comm, odd: run_of(comm, ds.Stepping((0.0, 1.0), "cn" if odd else "rk4", dt=0.25)),
        r"stepping\.method is 'rk4' on rank 0 and 'cn' on rank 1",
    ),
    "solve: tolerances": (
        lambda comm, odd: run_of(
            comm, ds.Stepping((0.0, 1.0), "rk5dp", rtol=1e-5 if odd else 1e-6)
        ),
        r"stepping\.rtol is 1e-06 on rank 0 and 1e-05 on rank 1",
    ),
    "solve: options": (
        lambda comm, odd: run_of(
            comm, ds.Stepping((0.0, 1.0), "cn", dt=0.5, options={"snes_max_it": 5 + odd})
        ),
        r"stepping\.options\['snes_max_it'\] is 5 on rank 0 and 6 on rank 1",
    ),
    "solve: no stepping": (
        lambda comm, odd: run_of(comm, None if odd else STEPPING),
        "stepping is nothing on rank 0 and None on rank 1",
    ),
    "solve: t_eval": (
        lambda comm, odd: run_of(comm, t_eval=[0.5, 0.25] if odd else [0.25, 0.5]),
        r"t_eval is \[0\.25, 0\.5\] on rank 0 and \[0\.5, 0\.25\] on rank 1",
    ),
    "adjoint: engine": (
        lambda comm, odd: ds.adjoint(run_of(comm), COST, engine="arrays" if odd else "vectors"),
        "adjoint: engine is 'vectors' on rank 0 and 'arrays' on rank 1",
    ),
    "adjoint: an unknown engine": (
        lambda comm, odd: ds.adjoint(run_of(comm), COST, engine="lumps" if odd else "vectors"),
        "engine is 'vectors' on rank 0 and 'lumps' on rank 1",
    ),
    "adjoint: number of costs": (
        lambda comm, odd: ds.adjoint(run_of(comm), [COST] * (1 + odd)),
        r"objective is \[Terminal\] on rank 0 and \[Terminal, Terminal\] on rank 1",
    ),
    "tangent: engine": (
        lambda comm, odd: ds.tangent(run_of(comm), dp=[1.0], engine="arrays" if odd else "vectors"),
        "tangents: engine is 'vectors' on rank 0 and 'arrays' on rank 1",
    ),
    "hessian_product: engine": (
        lambda comm, odd: ds.hessian_product(
            run_of(comm), COST, dp=[1.0], engine="arrays" if odd else "vectors"
        ),
        "hessian_products: engine is 'vectors' on rank 0 and 'arrays' on rank 1",
    ),
    "gauss_newton_product: engine": (
        lambda comm, odd: gauss_newton_product(
            run_of(comm), COST, dp=[1.0], engine="arrays" if odd else "vectors"
        ),
        "gauss_newton_product: engine is 'vectors' on rank 0 and 'arrays' on rank 1",
    ),
    "sensitivities: t": (
        lambda comm, odd: ds.sensitivities(run_of(comm), t=0.3 if odd else 0.5),
        r"sensitivities: t is 0\.5 on rank 0 and 0\.3 on rank 1",
    ),
    "sensitivities: with_respect_to": (
        lambda comm, odd: ds.sensitivities(run_of(comm), with_respect_to=("p", "u0")[: 1 + odd]),
        r"sensitivities: with_respect_to is \['p'\] on rank 0 and \['p', 'u0'\] on rank 1",
    ),
    "sensitivities: engine": (
        lambda comm, odd: ds.sensitivities(run_of(comm), engine="arrays" if odd else "vectors"),
        "sensitivities: engine is 'vectors' on rank 0 and 'arrays' on rank 1",
    ),
    "Reduced: engine": (
        lambda comm, odd: reduced_of(comm, engine="tsadjoint" if odd else "vectors"),
        "Reduced: engine is 'vectors' on rank 0 and 'tsadjoint' on rank 1",
    ),
    "Reduced: observation times": (
        lambda comm, odd: reduced_of(comm, cost=ds.LeastSquares([0.5 * (1 + odd)], [1.0])),
        r"Reduced: times is \[0\.5\] on rank 0 and \[1\.0\] on rank 1",
    ),
    "Reduced: control": (
        lambda comm, odd: reduced_of(
            comm, control=(lambda u: InitialState(u, [1.0])) if odd else None
        ),
        "Reduced: control is 'Parameters' on rank 0 and 'InitialState' on rank 1",
    ),
    "Parameters: free": (
        lambda comm, odd: reduced_of(
            comm, control=lambda u: ds.Parameters({"k": ds.Parameter(1.0, free=not odd)}, u)
        ),
        r"Parameters: entries\['k'\]\.free is True on rank 0 and False on rank 1",
    ),
    "Parameters: order": (
        lambda comm, odd: ds.Parameters(dict.fromkeys("ba" if odd else "ab", 1.0), [1.0]).check(
            decay(comm)[0]
        ),
        r"Parameters: names is \['a', 'b'\] on rank 0 and \['b', 'a'\] on rank 1",
    ),
    "InitialState: bounds": (
        lambda comm, odd: reduced_of(
            comm, control=lambda u: InitialState(u, [1.0], lower=0.0 if odd else -np.inf)
        ),
        r"InitialState: lower is -inf on rank 0 and 0\.0 on rank 1",
    ),
    "consistent_state: t": (
        lambda comm, odd: ds.consistent_state(*decay(comm), [1.0], t=np.nan if odd else 0.0),
        r"consistent_state: t is 0\.0 on rank 0 and nan on rank 1",
    ),
    "consistent_state: p": (
        lambda comm, odd: ds.consistent_state(*decay(comm), [1.0 + odd]),
        r"consistent_state: p is \[1\.0\] on rank 0 and \[2\.0\] on rank 1",
    ),
    "minimize: method": (
        lambda comm, odd: ds.minimize(reduced_of(comm), method="lmbfgs" if odd else "lmvm"),
        "minimize: method is 'lmvm' on rank 0 and 'lmbfgs' on rank 1",
    ),
    "minimize: a tolerance": (
        lambda comm, odd: ds.minimize(reduced_of(comm), gradient_tolerance=-1.0 if odd else 1e-8),
        r"minimize: gradient_tolerance is 1e-08 on rank 0 and -1\.0 on rank 1",
    ),
    "minimize: bounds": (
        lambda comm, odd: ds.minimize(reduced_of(comm), bounds=(0.0, 2.0) if odd else None),
        r"minimize: bounds is None on rank 0 and \[0\.0, 2\.0\] on rank 1",
    ),
    "minimize: restart": (
        lambda comm, odd: ds.minimize(reduced_of(comm), restart="file.h5" if odd else None),
        "minimize: restart is False on rank 0 and True on rank 1",
    ),
    "minimize: options": (
        lambda comm, odd: ds.minimize(reduced_of(comm), options={"tao_ls_max_funcs": 5 + odd}),
        r"minimize: options\['tao_ls_max_funcs'\] is 5 on rank 0 and 6 on rank 1",
    ),
    "check: t": (
        lambda comm, odd: ds.check(*decay(comm), [1.0], t=np.nan if odd else 0.0),
        r"check: t is 0\.0 on rank 0 and nan on rank 1",
    ),
    "check: objective": (
        lambda comm, odd: ds.check(*decay(comm), [1.0], objective=COST if odd else None),
        "check: objective is None on rank 0 and Terminal on rank 1",
    ),
    "taylor: hessian": (
        lambda comm, odd: ds.taylor(reduced_of(comm), hessian=odd),
        "taylor: hessian is False on rank 0 and True on rank 1",
    ),
    "duality: seed": (
        lambda comm, odd: duality(run_of(comm), COST, seed=int(odd)),
        "duality: seed is 0 on rank 0 and 1 on rank 1",
    ),
    "finite_differences: scheme": (
        lambda comm, odd: finite_differences(
            reduced_of(comm), scheme="central" if odd else "forward"
        ),
        "finite_differences: scheme is 'forward' on rank 0 and 'central' on rank 1",
    ),
    "continuous_adjoint: mode": (
        lambda comm, odd: continuous_adjoint(
            *decay(comm), [1.0], STEPPING, COST, mode="interpolating" if odd else "backsolve"
        ),
        "continuous_adjoint: mode is 'backsolve' on rank 0 and 'interpolating' on rank 1",
    ),
    "continuous_forward: with_respect_to": (
        lambda comm, odd: continuous_forward(
            *decay(comm), [1.0], STEPPING, with_respect_to=("p", "u0")[: 1 + odd]
        ),
        r"with_respect_to is \['p'\] on rank 0 and \['p', 'u0'\] on rank 1",
    ),
    "covariance: hessian": (
        lambda comm, odd: covariance(
            reduced_of(comm), [1.0], hessian="gauss_newton" if odd else "exact"
        ),
        "covariance: hessian is 'exact' on rank 0 and 'gauss_newton' on rank 1",
    ),
    "laplace: rank": (
        lambda comm, odd: laplace(reduced_of(comm), [1.0], None, rank=1 if odd else None),
        "laplace: rank is None on rank 0 and 1 on rank 1",
    ),
    "predict: times": (
        lambda comm, odd: predict(reduced_of(comm), None, [1.0 + odd]),
        r"predict: times is \[1\.0\] on rank 0 and \[2\.0\] on rank 1",
    ),
    "profile: names": (
        lambda comm, odd: profile(reduced_of(comm), None, ["k"] if odd else None),
        r"profile: names is None on rank 0 and \['k'\] on rank 1",
    ),
    "starting_points: count": (
        lambda comm, odd: starting_points(reduced_of(comm), 3 + odd),
        "starting_points: count is 3 on rank 0 and 4 on rank 1",
    ),
    "multistart: starts": (
        lambda comm, odd: multistart(lambda _: None, [[1.0]] * (1 + odd), comm=comm),
        r"multistart: starts is \[\[1\.0\]\] on rank 0 and \[\[1\.0\], \[1\.0\]\] on rank 1",
    ),
    "fit: starts": (
        lambda comm, odd: ds.fit(None, None, None, STEPPING, comm=comm, starts=1 + odd),
        "fit: starts is 1 on rank 0 and 2 on rank 1",
    ),
    "solve_batch: gradients": (
        lambda comm, odd: solve_batch(
            decay(PETSc.COMM_SELF)[0], [1.0], None, STEPPING, COST, gradients=not odd, comm=comm
        ),
        "solve_batch: gradients is True on rank 0 and False on rank 1",
    ),
    "Reduced: noise": (
        lambda comm, odd: reduced_of(comm, cost=ds.LeastSquares([1.0], [0.5], sigma=1.0 + odd)),
        r"Reduced: sigma is \[\[1\.0\]\] on rank 0 and \[\[2\.0\]\] on rank 1",
    ),
    "fit: data": (
        lambda comm, odd: ds.fit(*measured(odd), comm=comm),
        r"fit: data is \[\[0\.6\], \[0\.4\]\] on rank 0 and \[\[0\.6\], \[0\.5\]\] on rank 1",
    ),
    "fit: many data": (
        lambda comm, odd: ds.fit(*measured(odd, 40), comm=comm),
        "fit: data is 40 numbers of checksum [0-9a-f]{8} on rank 0 and 40 numbers of checksum",
    ),
    "fit: times": (
        lambda comm, odd: ds.fit(*measured(), times=[0.5, 1.0 - odd / 4], comm=comm),
        r"fit: times is \[0\.5, 1\.0\] on rank 0 and \[0\.5, 0\.75\] on rank 1",
    ),
    "fit: noise": (
        lambda comm, odd: ds.fit(*measured(), noise=Normal(0.1 + odd), comm=comm),
        r"fit: noise\['sigma'\] is 0\.1 on rank 0 and 1\.1 on rank 1",
    ),
    "fit: priors": (
        lambda comm, odd: ds.fit(*measured(), priors=ds.Prior([1.0 + odd]), comm=comm),
        r"fit: priors\[0\]\['mean'\] is \[1\.0\] on rank 0 and \[2\.0\] on rank 1",
    ),
    "fit: bounds": (
        lambda comm, odd: ds.fit(*measured(control=ds.Parameter(0.5, lower=-odd)), comm=comm),
        r"fit: parameters\['values'\]\['k'\]\.lower is 0 on rank 0 and -1 on rank 1",
    ),
    "fit: stepping": (
        lambda comm, odd: ds.fit(*measured(stepping=0.25 + odd / 4), comm=comm),
        r"fit: stepping\.dt is 0\.25 on rank 0 and 0\.5 on rank 1",
    ),
    "solve_batch: data": (
        lambda comm, odd: solve_batch(
            decay(PETSc.COMM_SELF)[0],
            [1.0],
            None,
            STEPPING,
            ds.LeastSquares([1.0], [0.5 + odd]),
            comm=comm,
        ),
        r"solve_batch: objective\['data'\] is \[\[0\.5\]\] on rank 0 and \[\[1\.5\]\] on rank 1",
    ),
    "matern: length": (
        lambda comm, odd: matern(*grid_and_mean(comm), 1.0, -1.0 if odd else 0.5),
        r"matern: length is 0\.5 on rank 0 and -1\.0 on rank 1",
    ),
    "trace: size": (
        lambda comm, odd: ds.trace(lambda t, u, p: -u, size=1 + odd, comm=comm),
        "trace: size is 1 on rank 0 and 2 on rank 1",
    ),
    "trace: order of parameters": (
        lambda comm, odd: ds.trace(
            lambda t, u, p: -u, 1, dict.fromkeys("ba" if odd else "ab", ()), comm=comm
        ),
        r"parameters is \[\['a', \[\]\], \['b', \[\]\]\] on rank 0 and \[\['b', \[\]\], \['a'",
    ),
    "trace_stencil: jacobian": (
        lambda comm, odd: ds.trace_stencil(
            lambda t, u, p: u.laplacian(),
            grid_and_mean(comm)[0],
            jacobian="assembled" if odd else "products",
        ),
        "trace_stencil: jacobian is 'products' on rank 0 and 'assembled' on rank 1",
    ),
    "variance of a prior: samples": (
        lambda comm, odd: matern(*grid_and_mean(comm), 1.0, 0.5).variance(3 if odd else None),
        "variance: samples is None on rank 0 and 3 on rank 1",
    ),
}


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("call", "message"), APART.values(), ids=APART)
def test_options_that_choose_the_way_are_the_same_on_all_ranks(comm, call, message):
    """Otherwise ranks would wait for each other for ever, or raise alone."""
    with pytest.raises(ds.InputError, match=message):
        call(comm, comm.rank == 1)


@pytest.mark.slow
def test_a_program_piped_into_head_ends_in_silence():
    program = "import daeosens\nfor k in range(10**6):\n    print(k)"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == -signal.SIGPIPE


@pytest.mark.slow
def test_a_closed_connection_is_python_s_to_tell_where_the_output_is_no_pipe(tmp_path):
    program = (
        "import daeosens, os\n"
        "reading, writing = os.pipe()\n"
        "os.close(reading)\n"
        "try:\n    os.write(writing, b'x')\n"
        "except BrokenPipeError:\n    print('told')"
    )
    output = tmp_path / "output"
    with output.open("w") as file:
        done = subprocess.run([sys.executable, "-c", program], stdout=file, check=False)
    assert done.returncode == 0
    assert output.read_text() == "told\n"


@pytest.mark.parametrize(("value", "seconds"), [(None, 60.0), ("2.5", 2.5), ("0", np.inf)])
def test_patience_is_chosen_in_the_environment(monkeypatch, value, seconds):
    monkeypatch.delenv("DAEOSENS_PATIENCE", raising=False)
    if value is not None:
        monkeypatch.setenv("DAEOSENS_PATIENCE", value)
    assert patience() == seconds


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_patience_is_a_number_of_seconds(monkeypatch, value):
    monkeypatch.setenv("DAEOSENS_PATIENCE", value)
    with pytest.raises(ds.InputError, match=f"DAEOSENS_PATIENCE = {value}"):
        patience()
