"""Multistart: every minimum found, finished starts kept, the same on any number of ranks."""

import json
import math

import numpy as np
import pytest
from closed_forms import Formula
from mpi4py import MPI
from petsc4py import PETSc

from daeosens import DaeosensError, InputError, SolveError
from daeosens.inverse.search.multistart import multistart
from daeosens.inverse.search.start_points import starting_points

SIZE = 3


def wells(comm=PETSc.COMM_SELF, **extra):
    """Two wells a component, the one near -1 lower: 2^3 minima."""
    return Formula(
        lambda x: np.sum((x**2 - 1) ** 2 + 0.2 * x),
        lambda x: 4 * x * (x**2 - 1) + 0.2,
        lambda x: np.diag(12 * x**2 - 4),
        np.full(SIZE, 0.9),
        bounds=(-2.0, 2.0),
        comm=comm,
        **extra,
    )


LOWEST = min(np.roots([4.0, 0.0, -4.0, 0.2]).real)
BEST = SIZE * ((LOWEST**2 - 1) ** 2 + 0.2 * LOWEST)
STARTS = starting_points(wells(), 13)
SETTINGS = {"method": "blmvm", "gradient_tolerance": 1e-10}


def facts(result):
    return [
        (
            attempt.index,
            attempt.start.tolist(),
            attempt.x.tolist(),
            attempt.value,
            attempt.message,
            attempt.iterations,
        )
        for attempt in result.attempts
    ]


class Counting:
    """Builds functionals and remembers them."""

    def __init__(self, make=wells):
        self.make, self.built = make, []

    def __call__(self, comm):
        self.built.append(self.make())
        return self.built[-1]

    @property
    def calls(self):
        return sum(len(item.points) for item in self.built)


# ---- starts --------------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize("sampling", ["sobol", "latin_hypercube"])
def test_starts_fill_the_box_and_begin_with_the_usual_one(sampling):
    starts = starting_points(wells(PETSc.COMM_WORLD), 17, sampling=sampling, seed=4)
    assert starts.shape == (17, SIZE)
    assert (starts[0] == 0.9).all()
    assert np.abs(starts).max() <= 2.0
    for column in starts[1:].T:  # one in each sixteenth
        assert sorted(np.floor((column + 2.0) * 4.0).astype(int)) == list(range(16))
    np.testing.assert_array_equal(starts, starting_points(wells(), 17, sampling=sampling, seed=4))
    assert (starts[1:] != starting_points(wells(), 17, sampling=sampling, seed=5)[1:]).all()


def test_starts_follow_priors_within_the_bounds():
    starts = starting_points(wells(), 1025, normal={1: (1.5, 0.5)})
    middle = starts[1:, 1]
    assert middle.max() <= 2.0
    assert middle.mean() == pytest.approx(1.5 - 0.5 * 0.28760, abs=0.01)  # cut normal
    assert starts[1:, 0].mean() == pytest.approx(0.0, abs=0.01)


def test_starts_need_bounds_or_priors():
    free = Formula(sum, np.ones_like, np.diag, [1.0, 1.0], bounds=([0.0, -math.inf], 1.0))
    with pytest.raises(InputError, match=r'"b" lies in \[-inf, 1\] in the optimiser\'s scale'):
        starting_points(free, 3, names=["a", "b"])
    assert starting_points(free, 3, normal={1: (0.0, 1.0)}).shape == (3, 2)
    assert starting_points(free, 1).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("count", "change", "message"),
    [
        (0, {}, "number of starts = 0"),
        (2.5, {}, "number of starts = 2.5"),
        (3, {"sampling": "grid"}, "sampling = 'grid'"),
    ],
)
def test_bad_numbers_of_starts_are_refused(count, change, message):
    with pytest.raises(InputError, match=message):
        starting_points(wells(), count, **change)


# ---- attempts ------------------------------------------------------------------------------------


@pytest.mark.mpi
def test_the_best_of_many_minima_is_found_the_same_on_any_number_of_ranks(comm):
    optima = multistart(lambda _comm: wells(), STARTS, comm=comm, **SETTINGS)
    assert optima.best.value == pytest.approx(BEST, rel=1e-12)
    np.testing.assert_allclose(optima.best.x, LOWEST, rtol=1e-9)
    assert all(attempt.converged for attempt in optima.attempts)
    values = [item.value for item in optima.ranked]
    assert values == sorted(values)
    assert optima.attempts[0].value > BEST + 0.5  # the usual start misses it
    alone = multistart(lambda _comm: wells(), STARTS, comm=MPI.COMM_SELF, **SETTINGS)
    assert facts(optima) == facts(alone)
    assert optima.n_at_best() == sum(value < BEST + 0.01 for value in values)


@pytest.mark.mpi
def test_groups_of_ranks_share_a_start(comm):
    optima = multistart(wells, STARTS[:4], comm=comm, ranks_per_start=comm.size, **SETTINGS)
    alone = multistart(lambda _comm: wells(), STARTS[:4], comm=MPI.COMM_SELF, **SETTINGS)
    for item, other in zip(optima.attempts, alone.attempts, strict=True):
        np.testing.assert_allclose(item.x, other.x, rtol=1e-8)


@pytest.mark.mpi
def test_finished_starts_are_not_done_again(comm, shared_tmp_path):
    folder = shared_tmp_path / "attempts"
    first = Counting()
    optima = multistart(first, STARTS, comm=comm, folder=folder, **SETTINGS)
    assert optima.resumed == 0
    comm.Barrier()
    if comm.rank == 0:
        for index in (2, 7):
            (folder / f"start_{index:05d}.json").unlink()
    comm.Barrier()
    second = Counting()
    again = multistart(second, STARTS, comm=comm, folder=folder, **SETTINGS)
    assert again.resumed == len(STARTS) - 2
    assert "11 read from before" in repr(again)
    assert facts(again) == facts(optima)
    redone = sum(optima.attempts[index].evaluations for index in (2, 7))
    assert comm.allreduce(second.calls) == redone + 1
    third = Counting()
    multistart(third, STARTS, comm=comm, folder=folder, **SETTINGS)
    assert comm.allreduce(third.calls) == 1  # one value, to tell another functional


def test_failed_starts_are_recorded_with_their_reason(tmp_path):
    def make(_comm):
        return wells(domain=lambda x: x[0] < 1.0)

    optima = multistart(make, STARTS, comm=MPI.COMM_SELF, folder=tmp_path, **SETTINGS)
    failed = [attempt for attempt in optima.attempts if not math.isfinite(attempt.value)]
    assert [item.index for item in failed] == np.flatnonzero(STARTS[:, 0] >= 1.0).tolist()
    assert len(failed) == 3
    assert all("no solution at" in item.message for item in failed)
    assert "3 failed, 0 not converged" in repr(optima)
    assert optima.ranked[-1] in failed
    again = multistart(make, STARTS, comm=MPI.COMM_SELF, folder=tmp_path, **SETTINGS)
    assert facts(again) == facts(optima)
    hopeless = STARTS[[item.index for item in failed]]
    optima = multistart(make, hopeless, comm=MPI.COMM_SELF, **SETTINGS)
    assert "3 starts, 3 failed, 0 not converged" in repr(optima)
    with pytest.raises(SolveError, match=r"all 3 starts failed; the first: .*no solution"):
        _ = optima.best


def test_attempts_that_end_early_are_told():
    optima = multistart(
        lambda _comm: wells(), STARTS, comm=MPI.COMM_SELF, method="blmvm", max_iterations=2
    )
    lines = repr(optima).splitlines()
    assert lines[1].endswith("max_iterations reached")
    assert "... 3 more" in lines[11]
    assert "13 not converged" in lines[12]


# ---- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starts", "change", "message"),
    [
        (STARTS[0], {}, r"starts have shape \(3,\)"),
        (STARTS[:, :2], {}, "starts have 2 components"),
        (STARTS * math.nan, {}, "starts is nan"),
        (STARTS, {"ranks_per_start": 2}, "ranks_per_start = 2 on 1 ranks"),
        (STARTS, {"method": "newton"}, "unknown method 'newton'"),
    ],
)
def test_bad_arguments_are_refused(starts, change, message):
    with pytest.raises(InputError, match=message):
        multistart(lambda _comm: wells(), starts, comm=MPI.COMM_SELF, **{**SETTINGS, **change})


def test_a_folder_of_another_multistart_is_refused(tmp_path):
    def run(starts, **change):
        return multistart(
            lambda _comm: wells(),
            starts,
            comm=MPI.COMM_SELF,
            folder=tmp_path,
            **{**SETTINGS, **change},
        )

    run(STARTS[:2])
    with pytest.raises(
        InputError, match=r"start_00000\.json: the multistart is of another problem; other starts"
    ):
        run(STARTS[:2], max_iterations=3)
    with pytest.raises(InputError, match="other starts or settings"):
        run(STARTS[:2] + 0.1)
    path = tmp_path / "start_00001.json"
    entry = json.loads(path.read_text())
    del entry["attempt"]["value"]
    path.write_text(json.dumps(entry))
    with pytest.raises(InputError, match=r"start_00001\.json: not an attempt"):
        run(STARTS[:2])
    path.write_text("{")
    with pytest.raises(InputError, match="not an attempt"):
        run(STARTS[:2])


@pytest.mark.mpi
@pytest.mark.parametrize("domain", [None, lambda x: x[0] > 5.0])
def test_a_folder_of_another_functional_is_refused_on_every_rank(comm, shared_tmp_path, domain):
    """Data and model are in no file: the value of an attempt tells them apart."""

    def other(_comm):
        return wells(domain=domain) if domain else sums_of_squares()

    multistart(lambda _comm: wells(), STARTS[:2], comm=comm, folder=shared_tmp_path, **SETTINGS)
    with pytest.raises(DaeosensError, match="the multistart is of another problem"):
        multistart(other, STARTS[:2], comm=comm, folder=shared_tmp_path, **SETTINGS)


def sums_of_squares():
    return Formula(
        lambda x: x @ x,
        lambda x: 2 * x,
        lambda x: 2 * np.eye(SIZE),
        np.ones(SIZE),
        bounds=(-2.0, 2.0),
    )


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        multistart(
            lambda _comm: wells(), STARTS, comm=MPI.COMM_SELF, folder=tmp_path / "file" / "here"
        )


def test_a_folder_that_vanishes_is_an_error(tmp_path):
    folder = tmp_path / "gone"

    def build(_comm):
        folder.rmdir()
        return wells()

    with pytest.raises(DaeosensError, match="cannot be written"):
        multistart(build, STARTS, comm=MPI.COMM_SELF, folder=folder, **SETTINGS)


@pytest.mark.mpi(min_size=2)
def test_an_exception_on_one_group_is_raised_on_all(comm):
    def build(_comm):
        if comm.rank == 1:
            raise ValueError("no such model")
        return wells()

    kind = ValueError if comm.rank == 1 else DaeosensError
    with pytest.raises(kind, match="no such model"):
        multistart(build, STARTS, comm=comm, **SETTINGS)


def test_starting_points_of_no_functional_are_refused():
    with pytest.raises(InputError, match=r"functional is NoneType(.|\n)*try: Reduced\("):
        starting_points(None, 3)


def test_bounds_of_the_search_alone_are_kept():
    bounds = ([0.0] * SIZE, [0.5, 2.0, 2.0])
    result = multistart(wells, np.clip(STARTS[:4], *bounds), bounds=bounds)
    upper = max(np.roots([4.0, 0.0, -4.0, 0.2]).real)
    for attempt in result.attempts:
        assert ((attempt.x >= bounds[0]) & (attempt.x <= bounds[1])).all()
    np.testing.assert_allclose(result.best.x, [0.5, upper, upper], atol=1e-6)
