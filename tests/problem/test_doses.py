"""Dose tables: closed forms of compartment models, derivatives, and what is refused."""

import numpy as np
import pytest
from mpi4py import MPI

import daeosens as ds
from daeosens.derivatives import evaluate
from daeosens.inverse import Normal, likelihood
from daeosens.problem import Doses, with_doses

NAMES = ["ka", "ke", "V", "F", "lag", "dose"]
P = np.array([1.1, 0.25, 20.0, 0.8, 0.4, 120.0])
STEPPING = ds.Stepping((0.0, 24.0), "rk6vr", rtol=1e-10, atol=1e-12)
TABLE = {
    "time": [0.0, 6.0, 8.0, 12.0],
    "amount": [100.0, 60.0, "dose", "dose"],
    "duration": [0.0, 3.0, 3.0, 0.0],
    "compartment": ["depot", "central", "central", "depot"],
}
TIMES = [3.0, 7.5, 8.5, 10.0, 13.0, 20.0, 24.0]


def rates(t, u, p):
    return np.array([-p[0] * u[0], p[0] * u[0] - p[1] * u[1]])


def model(style="numpy"):
    return (ds.ODE if style == "numpy" else ds.trace)(rates, ["depot", "central"], NAMES)


def table(lag="lag"):
    """Bioavailability and lag of what goes into the depot."""
    return Doses(TABLE, bioavailability={"depot": "F"}, lag={"depot": lag})


def closed_form(t, p):
    """The amounts at t: superposition of boluses by way of the depot, and of infusions."""
    ka, ke, _, fraction, lag, dose = p
    depot = central = 0.0
    for start, amount in ((0.0, 100.0), (12.0, dose)):
        since = t - start - lag
        if since.real > 0:
            depot += fraction * amount * np.exp(-ka * since)
            decay = np.exp(-ke * since) - np.exp(-ka * since)
            central += fraction * amount * ka / (ka - ke) * decay
    for start, rate in ((6.0, 20.0), (8.0, dose / 3.0)):
        since = t - start
        if since > 0:
            length = min(since, 3.0)
            central += rate / ke * (1 - np.exp(-ke * length)) * np.exp(-ke * (since - length))
    return np.array([depot, central])


def by_complex_steps(function, p):
    """Derivatives of a closed form, to rounding."""
    steps = 1e-30j * np.eye(len(p))
    return np.array([function(p + step).imag / 1e-30 for step in steps]).T


@pytest.mark.parametrize("style", ["numpy", "traced"])
def test_states_are_those_of_the_closed_form(style):
    run = ds.solve(with_doses(model(style), table()), [0.0, 0.0], P, STEPPING, TIMES)
    for t in TIMES:
        np.testing.assert_allclose(run.at(t), closed_form(t, P), rtol=2e-9, atol=1e-9)
    names = [crossing.name for crossing in run.crossings]
    assert names == ["dose 0", "dose 1", "dose 2", "dose 1 ends", "dose 2 ends", "dose 3"]
    assert [crossing.mode for crossing in run.crossings][1:5] == [
        "infusion 1",
        "infusion 2",
        "infusion 3",
        "no infusion",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "tolerance"), [("rk6vr", 1e-8), ("rk8vr", 1e-8), ("esdirk5", 1e-6)]
)
@pytest.mark.parametrize("style", ["numpy", "traced"])
def test_gradients_are_those_of_the_closed_form(style, method, tolerance):
    """In amounts, bioavailability, lag, and the rates."""
    stepping = ds.Stepping((0.0, 24.0), method, rtol=1e-10, atol=1e-12)
    run = ds.solve(with_doses(model(style), table()), [0.0, 0.0], P, stepping, TIMES)
    total = ds.LeastSquares(TIMES, np.zeros((len(TIMES), 2)))

    def exact(p):
        return 0.5 * sum((closed_form(t, p) ** 2).sum() for t in TIMES)

    expected = by_complex_steps(exact, P.astype(complex))
    gradient = ds.adjoint(run, total)
    np.testing.assert_allclose(gradient.value, exact(P), rtol=tolerance)
    np.testing.assert_allclose(gradient.p * P, expected * P, rtol=tolerance, atol=tolerance * 1e3)
    assert abs(expected[3:]).min() > 1.0  # F, lag and dose count


@pytest.mark.slow
@pytest.mark.parametrize("style", ["numpy", "traced"])
@pytest.mark.parametrize("method", ["rk6vr", "esdirk5", "cn"])
def test_derivatives_are_exact_to_both_orders(style, method):
    # sizes of adaptive steps follow the parameters: what that adds to differences falls with rtol
    steps = {"dt": 0.25} if method == "cn" else {"rtol": 1e-9}
    stepping = ds.Stepping((0.0, 24.0), method, **steps)
    entries = {name: ds.Parameter(value, scale="log") for name, value in zip(NAMES, P, strict=True)}
    misfit = ds.LeastSquares(TIMES, [[20.0, 30.0]] * len(TIMES), 10.0, side="before")
    functional = ds.Reduced(
        with_doses(model(style), table()), misfit, stepping, ds.Parameters(entries, [0.0, 0.0])
    )
    assert min(ds.taylor(functional, hessian=True)) > 2.9

    run, rng = functional.trajectory(functional.start()), np.random.default_rng(2)
    du0, dp = rng.normal(size=2), rng.normal(size=6)
    gradient = ds.adjoint(run, misfit)
    along = ds.tangent(run, du0, dp).derivative(misfit)
    assert along == pytest.approx(gradient.u0 @ du0 + gradient.p @ dp, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["numpy", "traced"])
@pytest.mark.parametrize("method", ["rk6vr", "cn"])
def test_infusions_are_swept_in_blocks_as_by_steps(style, method):
    """Small models go in blocks by default; amounts that are parameters have derivatives there."""
    times, data = TIMES, np.full((len(TIMES), 2), 10.0)
    misfit = ds.LeastSquares(times, data)
    steps = {"dt": 0.25} if method == "cn" else {"rtol": 1e-9}
    stepping = ds.Stepping((0.0, 24.0), method, **steps)
    run = ds.solve(with_doses(model(style), table()), [0.0, 0.0], P, stepping, times)
    assert ds.adjoint(run, misfit).engine == "arrays"
    rng = np.random.default_rng(4)
    du0, dp = rng.normal(size=2), rng.normal(size=6)
    results = []
    for engine in ("arrays", "vectors"):
        gradient = ds.adjoint(run, misfit, engine=engine)
        product = ds.hessian_product(run, misfit, du0, dp, engine=engine)
        slope = ds.tangent(run, du0, dp, engine=engine).derivative(misfit)
        results.append([gradient.u0, gradient.p, product.u0, product.p, slope])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10 * np.abs(theirs).max())


def test_products_of_amount_and_bioavailability_have_their_mixed_derivative():
    """A bolus and an infusion of F * dose: a bilinear form."""
    blood = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate", "F", "dose"])
    rows = [[0.0, "dose", 0.0], [1.0, "dose", 2.0]]
    treated = with_doses(blood, Doses(rows, bioavailability="F"))
    k = 0.3
    control = ds.Parameters({"rate": k, "F": ds.Parameter(0.5), "dose": ds.Parameter(4.0)}, [0.0])
    stepping = ds.Stepping((0.0, 5.0), "rk8vr", rtol=1e-11)
    functional = ds.Reduced(treated, ds.Terminal(lambda t, u, p: u[0]), stepping, control)
    per_unit = np.exp(-5 * k) + (np.exp(-2 * k) - np.exp(-4 * k)) / (2 * k)
    assert functional.value(functional.start()) == pytest.approx(2.0 * per_unit, rel=1e-9)
    expected = per_unit * np.array([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(functional.hessian(functional.start()), expected, atol=1e-8)


@pytest.mark.slow
def test_a_mass_scales_what_is_infused():
    """V c' = rate - V k c: a mass that depends on a parameter."""
    blood = ds.ODE(
        lambda t, u, p: -p[0] * p[1] * u, 1, ["k", "V"], mass=lambda p: np.array([[p[1]]])
    )
    treated = with_doses(blood, [[1.0, 10.0, 2.0]])
    stepping = ds.Stepping((0.0, 4.0), "cn", dt=0.005)
    run = ds.solve(treated, [0.0], [0.5, 8.0], stepping)

    def exact(p):
        return 5.0 / (p[0] * p[1]) * (1 - np.exp(-2 * p[0])) * np.exp(-p[0])

    assert run.final[0] == pytest.approx(exact([0.5, 8.0]), rel=1e-5)
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0])).p
    expected = by_complex_steps(exact, np.array([0.5, 8.0], dtype=complex))
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)
    control = ds.Parameters({"k": ds.Parameter(0.5), "V": ds.Parameter(8.0)}, [0.0])
    functional = ds.Reduced(treated, ds.Terminal(lambda t, u, p: u[0]), stepping, control)
    assert min(ds.taylor(functional, hessian=True)) > 2.9


@pytest.mark.parametrize("lag", [0.0, 0.5])
def test_a_lag_that_is_a_number_shifts_the_table(lag):
    run = ds.solve(with_doses(model(), table(lag)), [0.0, 0.0], P, STEPPING, [20.0])
    p = P.copy()
    p[4] = lag
    np.testing.assert_allclose(run.at(20.0), closed_form(20.0, p), rtol=2e-9)


def test_equal_rates_share_their_equations():
    blood = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["k"])
    rows = [[8.0 * k, 10.0, 1.0] for k in range(6)]
    assert set(with_doses(blood, rows).modes) == {"no infusion", "infusion 1"}


def test_doses_behind_the_end_wait_for_a_longer_run():
    blood = with_doses(ds.ODE(lambda t, u, p: -u, 1), [[0.0, 1.0], [5.0, 1.0], [9.0, 1.0, 2.0]])
    short = ds.solve(blood, [0.0], [], ds.Stepping((0.0, 4.0), "rk6vr", rtol=1e-9))
    assert [crossing.name for crossing in short.crossings] == ["dose 0"]
    longer = ds.solve(blood, [0.0], [], ds.Stepping((0.0, 6.0), "rk6vr", rtol=1e-9))
    assert longer.final[0] == pytest.approx(np.exp(-6) + np.exp(-1), rel=1e-8)


def test_other_events_stay():
    """A wash-out that empties the depot, between doses."""
    empty = ds.Event(9.0, lambda t, u, p: u * [0.0, 1.0], name="wash-out")
    treated = with_doses(ds.ODE(rates, ["depot", "central"], NAMES, events=[empty]), table())
    run = ds.solve(treated, [0.0, 0.0], P, STEPPING)
    assert [crossing.name for crossing in run.crossings][-1] == "dose 3"
    assert "wash-out" in [crossing.name for crossing in run.crossings]


# ---- tables --------------------------------------------------------------------------------------

ROWS = [[0.0, 100.0, 0.0, "depot"], [6.0, 60.0, 2.0, "central"]]


def as_csv(tmp_path):
    path = tmp_path / "doses.csv"
    path.write_text("time,amount,duration,compartment\n0,100,,depot\n6,60,2,central\n")
    return path


def as_pandas(_path):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(ROWS, columns=["time", "amount", "duration", "compartment"])


@pytest.mark.parametrize(
    "make",
    [
        lambda path: ROWS,
        lambda path: dict(
            zip(("time", "amount", "duration", "compartment"), zip(*ROWS, strict=True), strict=True)
        ),
        as_csv,
        as_pandas,
    ],
    ids=["rows", "mapping", "csv", "pandas"],
)
def test_tables_of_any_form_say_the_same(make, tmp_path):
    rows = Doses(make(tmp_path)).rows
    assert [(d.time, d.amount, d.duration, d.compartment) for d in rows] == [
        tuple(row) for row in ROWS
    ]
    by_number = np.array([[0.0, 100.0, 0.0, 0], [6.0, 60.0, 2.0, 1]])
    runs = [
        ds.solve(with_doses(model(), value), [0.0, 0.0], P, STEPPING).final
        for value in (make(tmp_path), by_number)
    ]
    np.testing.assert_array_equal(*runs)


WRONG = {
    "column": ({"time": [0.0], "dose": [1.0]}, r'no column "amount"(.|\n)*"dose" means nothing'),
    "time": ([[np.nan, 1.0]], r'row 0, column "time": nan'),
    "duration": ([[0.0, 1.0, -1.0]], r'row 0, column "duration": -1.0; expected: a number >= 0'),
    "amount": ([[0.0, -1.0]], r'row 0, column "amount": -1.0'),
    "shape": (5.0, "doses is float"),
    "lengths": ({"time": [0.0, 1.0], "amount": [1.0]}, "different lengths"),
    "compartment": ([[0.0, 1.0, 0.0, "depott"]], r'row 0, column "compartment"(.|\n)*"depot"'),
    "number": ([[0.0, 1.0, 0.0, 7]], r'row 0, column "compartment": there is no unknown 7'),
    "parameter": ([[0.0, "dosis", 0.0, 0]], r'row 0 names the parameter "dosis"(.|\n)*try: "dose"'),
    "none": ([[0.0, 1.0]], r"row 0 names no compartment of 2(.|\n)*depot, central"),
}


@pytest.mark.parametrize(("rows", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(rows, message):
    with pytest.raises(ds.InputError, match=message):
        with_doses(model(), rows)


def test_unknown_fractions_and_lags_are_named():
    for keywords in ({"bioavailability": "G"}, {"lag": "G"}):
        with pytest.raises(ds.InputError, match='names the parameter "G"'):
            with_doses(model(), Doses(ROWS, **keywords))
    with pytest.raises(ds.InputError, match=r"lag = -1"):
        with_doses(model(), Doses(ROWS, lag=-1.0))


def test_what_cannot_be_infused_says_so():
    infusion = [[0.0, 1.0, 1.0, 0]]
    with pytest.raises(ds.UnsupportedError, match="infusions into F"):
        with_doses(ds.DAE(lambda t, u, udot, p: udot + u, size=1), infusion)
    on = ds.ODE(lambda t, u, p: -u, 1)
    with pytest.raises(ds.UnsupportedError, match="a problem with modes"):
        with_doses(ds.hybrid({"on": on}, "on"), infusion)
    two = Doses([[0.0, 1.0, 1.0, 0], [0.0, 1.0, 1.0, 1]], lag={"depot": "lag"})
    with pytest.raises(ds.UnsupportedError, match="infusions with the lags 0, lag"):
        with_doses(model(), two)


# ---- fits ----------------------------------------------------------------------------------------


def patients():
    """Two patients with doses and volumes of their own; concentrations, troughs at dose times."""
    rng, experiments, truth = np.random.default_rng(7), [], []
    for number, volume in enumerate((20.0, 31.0)):
        doses = Doses(
            [[0.0, 100.0, 0.0, "depot"], [6.0, 60.0, 3.0, "central"], [12.0, 120.0, 0.0, "depot"]],
            bioavailability={"depot": "F"},
        )
        if number:
            doses = Doses([[0.0, 150.0, 0.0, "depot"], [6.0, 80.0, 0.0, "central"]], {"depot": "F"})
        times = np.array([1.0, 3.0, 6.0, 7.0, 9.0, 12.0, 13.0, 18.0, 24.0])
        p = P.copy()
        p[2] = volume
        run = ds.solve(with_doses(model("traced"), doses), [0.0, 0.0], p, STEPPING, times)
        values = np.array([run.at(t, "before")[1] for t in times]) / volume
        data = {"time": times, "c": values * np.exp(0.02 * rng.normal(size=9))}
        truth.append(values)
        own = {"V": ds.Parameter(25.0, scale="log")}
        experiments.append(
            ds.Experiment(data, STEPPING, parameters=own, doses=doses, name=f"patient {number + 1}")
        )
    return experiments, truth


def unknown():
    free = {name: ds.Parameter(v, scale="log") for name, v in (("ka", 0.8), ("ke", 0.3))}
    return ds.Parameters({**free, "V": 25.0, "F": 0.8, "lag": 0.0, "dose": 0.0}, [0.0, 0.0])


def concentration(t, u, p):
    return u[1:] / p[2]


@pytest.mark.slow
def test_patients_with_doses_of_their_own_are_fitted_together():
    experiments, truth = patients()
    fitted = ds.fit(model("traced"), experiments, unknown(), observe=concentration)
    assert fitted.converged
    for name, value in (
        ("ka", 1.1),
        ("ke", 0.25),
        ("V (patient 1)", 20.0),
        ("V (patient 2)", 31.0),
    ):
        assert abs(fitted.estimate[name] - value) < 3 * fitted.covariance.error(name)
    # the trough is the state before the dose, in predictions too
    predicted = fitted.prediction([6.0, 12.0], experiment=1)
    np.testing.assert_allclose(predicted.value[:, 0], truth[1][[2, 5]], rtol=0.05)
    after = fitted.prediction([6.0], experiment=1, side="after")
    assert after.value[0, 0] > predicted.value[0, 0] + 2.0


@pytest.mark.slow
@pytest.mark.parametrize("noise", [Normal(0.1), Normal()])
def test_the_likelihood_of_dosed_patients_has_exact_derivatives(noise):
    functional = likelihood(
        model("traced"), patients()[0], unknown(), observe=concentration, noise=noise
    )
    assert min(ds.taylor(functional, hessian=True)) > 2.9


@pytest.mark.slow
def test_data_at_the_time_of_a_dose_are_troughs_unless_said_otherwise():
    blood = ds.ODE(lambda t, u, p: -p[0] * u, ["drug"], ["k"])
    control = ds.Parameters({"k": ds.Parameter(0.2, scale="log")}, [0.0])
    stepping = ds.Stepping((0.0, 12.0), "rk6vr", rtol=1e-9)
    trough, peak = 10 * np.exp(-0.25 * 6), 10 * np.exp(-0.25 * 6) + 10
    for side, value in ((None, trough), ("before", trough), ("after", peak)):
        data = {"time": [3.0, 6.0], "drug": [10 * np.exp(-0.75), value]}
        fitted = ds.fit(
            blood,
            data,
            control,
            stepping,
            doses=[[0.0, 10.0], [6.0, 10.0]],
            side=side,
            noise=Normal(0.1),
        )
        assert fitted.estimate["k"] == pytest.approx(0.25, rel=1e-6)


def test_sides_and_doses_that_cannot_be_are_refused_before_a_run():
    blood = ds.ODE(lambda t, u, p: -p[0] * u, ["drug"], ["k"])
    control = ds.Parameters({"k": ds.Parameter(0.2, scale="log")}, [0.0])
    data = {"time": [3.0, 6.0], "drug": [1.0, 0.5]}
    stepping = ds.Stepping((0.0, 12.0), "rk6vr", rtol=1e-9)
    with pytest.raises(ds.InputError, match="side = 'middle'"):
        ds.fit(blood, data, control, stepping, side="middle")
    with pytest.raises(
        ds.InputError, match=r"row 0 is given at -2, before the start of the run, 0"
    ):
        ds.fit(blood, data, control, stepping, doses=[[-2.0, 10.0]])
    with pytest.raises(ds.InputError, match="doses= beside experiments"):
        ds.fit(blood, [ds.Experiment(data, stepping)], control, doses=[[0.0, 10.0]])
    wrong = ds.Experiment(data, stepping, doses=[[0.0, "D"]], name="a")
    with pytest.raises(
        ds.InputError, match=r'experiments\[1\] \(a\)(.|\n)*names the parameter "D"'
    ):
        ds.fit(blood, [ds.Experiment(data, stepping), wrong], control)


def test_time_plus_parameter_is_when_an_event_happens():
    jump = ds.Event((2.0, "wait"), lambda t, u, p: u + 1.0, name="jump")
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["k", "wait"], events=[jump])
    run = ds.solve(problem, [1.0], [0.5, 0.75], ds.Stepping((0.0, 4.0), "rk8vr", rtol=1e-10))
    assert run.crossings[0].t == pytest.approx(2.75, rel=1e-14)
    value = np.exp(-2.0) + np.exp(-0.5 * 1.25)
    gradient = ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0]))
    assert gradient.value == pytest.approx(value, rel=1e-9)
    assert gradient.p[1] == pytest.approx(0.5 * np.exp(-0.5 * 1.25), rel=1e-8)
    assert evaluate(run, ds.Terminal(lambda t, u, p: u[0])) == gradient.value
    for when in ((2.0,), (2.0, 3.0), ("wait", 2.0), (np.inf, 1)):
        with pytest.raises(ds.InputError, match="when"):
            ds.Event(when)


@pytest.mark.slow
@pytest.mark.mpi
def test_doses_are_the_same_on_every_rank():
    comm = MPI.COMM_WORLD
    blood = ds.ODE(lambda t, u, p: -p[0] * u, ["drug"], ["k"])
    control = ds.Parameters({"k": ds.Parameter(0.2, scale="log")}, [0.0])
    stepping = ds.Stepping((0.0, 12.0), "rk6vr", rtol=1e-9)
    data = {"time": [3.0, 6.0], "drug": 10 * np.exp(-0.25 * np.array([3.0, 6.0]))}

    def estimated(amount):
        fitted = ds.fit(
            blood,
            data,
            control,
            stepping,
            doses={"time": [0.0, 6.0], "amount": [10.0, amount]},
            noise=Normal(0.1),
            comm=comm,
        )
        return fitted.estimate["k"]

    assert estimated(5.0) == pytest.approx(0.25, rel=1e-6)
    if comm.size > 1:
        with pytest.raises(
            ds.InputError, match=r"doses(.|\n)*amount(.|\n)* is 5.0 on rank 0 and 6.0"
        ):
            estimated(5.0 + min(comm.rank, 1))
