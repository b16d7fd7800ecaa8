"""Ctrl-C during minimisations and fits, with real signals, and progress on a terminal."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import textwrap

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

import daeosens as ds
from daeosens.optimize.interruption import interruptible
from daeosens.petsc import gather

STEPPING = ds.Stepping((0.0, 3.0), "rk4", dt=0.1)
DATA = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}


@pytest.fixture(autouse=True)
def listening():
    """Ctrl-C is heard: programs that a shell starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Hand:
    """Presses Ctrl-C on one rank, in a run."""

    def __init__(self, after, rank=0):
        self.left, self.rank = after, rank

    def __call__(self, *_point):
        self.left -= 1
        if self.left == 0 and MPI.COMM_WORLD.rank == self.rank:
            os.kill(os.getpid(), signal.SIGINT)


def decay(hand):
    def rhs(t, u, p):
        hand()
        return -p[0] * u * u + p[1] * u

    return ds.ODE(
        rhs,
        1,
        ["rate", "growth"],
        jacobian=lambda t, u, p: np.array([[-2 * p[0] * u[0] + p[1]]]),
        jacobian_p=lambda t, u, p: np.array([[-(u[0] ** 2), u[0]]]),
        hessian_product=lambda t, u, p, w, du, dp: (
            w * (-2 * p[0] * du - 2 * u * dp[0] + dp[1]),
            np.array([-2 * u[0] * du[0] * w[0], du[0] * w[0]]),
        ),
    )


def control():
    return ds.Parameters({"rate": ds.Parameter(2.0), "growth": ds.Parameter(1.5)}, [1.0])


def reduced(hand):
    misfit = ds.LeastSquares(DATA["time"], DATA["mass"], 0.01)
    return ds.Reduced(decay(hand), misfit, STEPPING, control())


RUN = 4 * 30  # evaluations of rhs in a run


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lmvm", "bntr", "brgn", "bncg"])
def test_ctrl_c_keeps_the_last_iterate(method):
    whole = ds.minimize(reduced(Hand(0)), method=method)
    hand = Hand(5 * RUN + 17)
    functional = reduced(hand)
    result = ds.minimize(functional, method=method)
    assert result.interrupted
    assert not result.converged
    assert "interrupted" in repr(result)
    assert 0 < result.iterations < whole.iterations
    assert result.value == whole.history.value[result.iterations]
    # nothing is left behind
    assert functional.value(result.x) == result.value
    again = ds.minimize(functional, result.x, method=method)
    np.testing.assert_allclose(gather(again.x), gather(whole.x), rtol=1e-6)


def test_ctrl_c_before_the_first_iterate_comes_out():
    with pytest.raises(KeyboardInterrupt):
        ds.minimize(reduced(Hand(40)))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("starts", [1, 3])
def test_a_fit_that_is_interrupted_has_the_best_point(starts):
    bounded = ds.Parameters(
        {
            "rate": ds.Parameter(2.0, lower=0.1, upper=4.0),
            "growth": ds.Parameter(1.5, lower=-1.0, upper=3.0),
        },
        [1.0],
    )
    hand = Hand((6 if starts == 1 else 25) * RUN)
    fitted = ds.fit(decay(hand), DATA, bounded, STEPPING, starts=starts)
    assert hand.left < 0
    assert fitted.result.interrupted
    assert "NOT converged (interrupted" in repr(fitted)
    if starts > 1:
        assert fitted.starts.interrupted
        assert fitted.result.value == fitted.starts.best.value
        assert len(fitted.starts.attempts) < starts or not fitted.starts.attempts[-1].converged


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_on_one_rank_stops_all_at_the_same_iterate(rank):
    hand = Hand(6 * RUN + 5, rank)
    fitted = ds.fit(decay(hand), DATA, control(), STEPPING, comm=MPI.COMM_WORLD, method="lmvm")
    assert fitted.result.interrupted
    every = MPI.COMM_WORLD.allgather((fitted.result.iterations, *gather(fitted.result.x).tolist()))
    assert len(set(every)) == 1
    assert every[0][0] > 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Bowl:
    """A quadratic over several ranks, on one of which Ctrl-C is pressed."""

    comm = PETSc.COMM_WORLD

    def __init__(self, after):
        self.hand = Hand(after, rank=MPI.COMM_WORLD.size - 1)

    def start(self):
        vec = PETSc.Vec().createMPI(12, comm=self.comm)
        vec.setArray(1.0 + np.arange(*vec.getOwnershipRange()))
        return vec

    def bounds(self):
        return None

    def value(self, x):
        return self.value_and_gradient(x)[0]

    def gradient(self, x):
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x):
        self.hand()
        slope = x.copy()
        slope.array[:] *= 1.0 + np.arange(*x.getOwnershipRange()) ** 2
        return 0.5 * slope.dot(x), slope


@pytest.mark.mpi
def test_ctrl_c_stops_distributed_minimisations():
    result = ds.minimize(Bowl(4))
    assert result.interrupted
    assert 0 < result.iterations < 5
    assert len(set(MPI.COMM_WORLD.allgather(result.value))) == 1


@pytest.mark.mpi
@pytest.mark.parametrize("failing", [False, True])
def test_ranks_with_functionals_of_their_own_need_not_evaluate_as_often(comm, failing):
    checks = []

    def evaluate(stop):
        stop.check()
        checks.append(comm.rank)
        if failing and comm.rank == 0 and len(checks) == 2:
            raise ds.SolveError("no memory")

    def evaluate_often():
        with interruptible(comm, copies=True) as stop:
            for _ in range(3 + 4 * comm.rank):
                evaluate(stop)

    if failing:
        with pytest.raises(ds.SolveError, match="no memory") as caught:
            evaluate_often()
        assert (f"on rank 0 of {comm.size}" in str(caught.value)) == (comm.rank > 0)
        assert len(checks) == 2  # the others do not go on
    else:
        evaluate_often()
        assert len(checks) == 3 + 4 * comm.rank
    assert comm.allreduce(1) == comm.size  # in step


# ---- progress ------------------------------------------------------------------------------------

PROGRAM = textwrap.dedent(
    """
    import daeosens as ds
    decay = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    rates = ds.Parameters({"rate": ds.Parameter(1.0, scale="log")}, [1.0])
    data = {"time": [1.0, 2.0, 3.0], "mass": [0.62, 0.35, 0.23]}
    ds.fit(decay, data, rates, ds.Stepping((0.0, 3.0), "rk4", dt=0.1), progress=PROGRESS)
    """
)


def shown(progress):
    """Return what a program writes to stderr if that is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    program = PROGRAM.replace("PROGRESS", progress)
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=theirs, stdout=subprocess.PIPE
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            text += part
        printed = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    return text.decode(), printed.decode()


@pytest.mark.slow
def test_progress_is_shown_on_terminals_unless_unwanted():
    text, printed = shown("None")
    assert "minimize" in text
    assert "gradient" in text
    assert "runs" in text
    assert not printed
    assert shown("False") == ("", "")


def test_nothing_is_shown_elsewhere(capfd):
    ds.minimize(reduced(Hand(0)))
    assert capfd.readouterr() == ("", "")
