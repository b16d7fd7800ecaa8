"""Fits as people in other fields write them: names, data frames, replicates, patients."""

import math

import numpy as np
import pandas as pd
import pytest

import daeosens as ds
from daeosens.functional import Joint
from daeosens.inverse import LogNormal, Normal, likelihood
from daeosens.petsc import gather
from daeosens.problem import with_events

RNG = np.random.default_rng(5)
TIMES = np.array([0.5, 1.0, 2.0, 3.0])
STEPPING = ds.Stepping((0.0, 3.0), "rk4", dt=0.05)


def decay():
    return ds.ODE(lambda t, u, p: -p[0] * u, size=["mass"], parameters=["rate"])


def rates(value=0.7, **extra):
    return ds.Parameters(
        {"rate": ds.Parameter(value, scale="log", **extra)}, initial_state={"mass": 1.0}
    )


def regression(times, values):
    """Return the rate of an exponential decay from 1, its data log-normal, and its error."""
    logs = np.log(values)
    rate = -(times @ logs) / (times @ times)
    variance = ((logs + rate * times) ** 2).sum() / (len(times) - 1)
    return rate, math.sqrt(variance / (times @ times))


# ---- tables --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_replicates_in_any_order_are_the_regression_of_all_of_them():
    times = np.tile(TIMES, 3)
    values = np.exp(-0.5 * times + 0.1 * RNG.standard_normal(12))
    fitted = ds.fit(decay(), {"h": times, "mass": values}, rates(), STEPPING, noise=LogNormal())
    rate, error = regression(times, values)
    assert fitted.estimate["rate"] == pytest.approx(rate, rel=1e-6)
    assert fitted.covariance.error("rate") == pytest.approx(error, rel=1e-6)
    np.testing.assert_array_equal(fitted.data.times, np.repeat(TIMES, 3))
    np.testing.assert_array_equal(fitted.data.values[:, 0], values[fitted.data.order])


@pytest.mark.slow
def test_levels_of_rows_go_with_their_rows_where_times_are_sorted():
    times, values = TIMES[::-1], np.exp(-0.5 * TIMES[::-1]) * [1.1, 0.9, 1.05, 0.97]
    levels = np.array([[0.1], [0.2], [0.3], [0.4]])
    options = {"parameters": rates(), "stepping": STEPPING}
    falling = ds.fit(decay(), {"h": times, "m": values}, noise=Normal(levels), **options)
    rising = ds.fit(decay(), {"h": TIMES, "m": values[::-1]}, noise=Normal(levels[::-1]), **options)
    assert falling.estimate["rate"] == pytest.approx(rising.estimate["rate"], rel=1e-8)
    assert falling.chi_square == pytest.approx(rising.chi_square, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 2])
def test_an_empty_cell_of_a_single_column_counts_for_nothing(missing):
    values = np.exp(-0.5 * TIMES + 0.1 * np.array([1.0, -1.0, 0.5, 0.2]))
    kept = np.arange(4) != missing
    holed = np.where(kept, values, np.nan)
    fitted = ds.fit(decay(), {"h": TIMES, "mass": holed}, rates(), STEPPING, noise=LogNormal())
    assert fitted.estimate["rate"] == pytest.approx(regression(TIMES[kept], values[kept])[0])
    assert fitted.degrees_of_freedom == pytest.approx(2.0)
    assert np.isnan(fitted.residuals[missing, 0])


@pytest.mark.slow
def test_replicates_may_have_holes_of_their_own():
    """Where one of two replicates lacks the first column and the other the second."""
    pair = ds.ODE(lambda t, u, p: -p[0] * u, size=2, parameters=["rate"])
    start = ds.Parameters({"rate": ds.Parameter(0.7, scale="log")}, [1.0, 2.0])
    times = np.repeat(TIMES, 2)
    values = np.exp(-0.5 * times[:, None] + 0.1 * RNG.standard_normal((8, 2))) * [1.0, 2.0]
    values[0::2, 0] = values[1::2, 1] = np.nan
    fitted = ds.fit(pair, values, start, STEPPING, times=times, noise=LogNormal())
    seen = ~np.isnan(values)
    logs = np.log(values / [1.0, 2.0])[seen]
    moments = np.broadcast_to(times[:, None], (8, 2))[seen]
    rate = -(moments @ logs) / (moments @ moments)
    assert fitted.estimate["rate"] == pytest.approx(rate, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame,
        lambda columns: np.rec.fromarrays([*columns.values()], names=[*columns]),
    ],
    ids=["pandas", "structured array"],
)
def test_tables_of_other_libraries_are_read_by_column(table):
    columns = {"h": TIMES, "mass": np.exp(-0.5 * TIMES) * [1.1, 0.9, 1.0, 1.05]}
    fitted = ds.fit(decay(), table(columns), rates(), STEPPING, noise=LogNormal())
    assert fitted.data.names == ("mass",)
    assert fitted.estimate["rate"] == pytest.approx(regression(TIMES, columns["mass"])[0])


# ---- names of unknowns ---------------------------------------------------------------------------


def chain(t, u, p):
    return np.array([-p[0] * u[0], p[0] * u[0] - p[1] * u[1], p[1] * u[1]])


def chain_dae(t, u, udot, p):
    return udot - chain(t, u, p)


NAMES, CONSTANTS = ["A", "B", "C"], ["first", "second"]
MADE = {
    "ODE": lambda: ds.ODE(chain, NAMES, CONSTANTS),
    "DAE": lambda: ds.DAE(chain_dae, NAMES, CONSTANTS),
    "trace": lambda: ds.trace(
        lambda t, u, p: [-p.first * u[0], p.first * u[0] - p.second * u[1], p.second * u[1]],
        NAMES,
        CONSTANTS,
    ),
}


@pytest.mark.parametrize("kind", MADE)
def test_states_are_known_by_their_names(kind):
    problem = MADE[kind]()
    stepping = ds.Stepping((0.0, 3.0), "cn" if kind == "DAE" else "rk4", dt=0.02)
    constants = {"first": 0.9, "second": 0.4}
    run = ds.solve(problem, {"C": 0.0, "A": 1.0, "B": 0.0}, constants, stepping, t_eval=TIMES)
    values = np.array([run.at(t).array for t in TIMES])
    unknown = ds.Parameters(
        {name: ds.Parameter(0.6, scale="log") for name in CONSTANTS}, [1.0, 0.0, 0.0]
    )
    by_name = ds.LeastSquares(TIMES, values[:, [2, 0]], 0.01, observe=["C", "A"])
    by_number = ds.LeastSquares(TIMES, values[:, [2, 0]], 0.01, observe=[2, 0])
    functionals = [ds.Reduced(problem, value, stepping, unknown) for value in (by_name, by_number)]
    assert functionals[0].value([0.1, 0.2]) == functionals[1].value([0.1, 0.2]) > 1.0
    misfit = ds.LeastSquares(TIMES, values[:, 1], 0.01, observe="B")
    assert (
        ds.Reduced(problem, misfit, stepping, unknown).value([math.log(0.9), math.log(0.4)]) < 1e-12
    )
    with pytest.raises(ds.InputError, match=r'there is no unknown "D"(.|\n)*"A", "B", "C"'):
        ds.Reduced(problem, ds.LeastSquares([1.0], [1.0], observe="D"), stepping, unknown)
    with pytest.raises(ds.InputError, match=r'u0: 2 problems\n.*"C" is missing\n.*unknown "D"'):
        ds.solve(problem, {"A": 1.0, "B": 0.0, "D": 0.0}, constants, stepping)
    with pytest.raises(ds.InputError, match=r"more than once"):
        ds.ODE(chain, ["A", "B", "A"], CONSTANTS)


@pytest.mark.slow
def test_columns_with_the_names_of_unknowns_are_these():
    """The product is zero at the start, where it was not observed, and has no logarithm."""
    times = np.array([0.5, 1.0, 2.0, 3.0])
    reactant = np.exp(-0.9 * times)
    intermediate = 0.9 / (0.4 - 0.9) * (np.exp(-0.9 * times) - np.exp(-0.4 * times))
    table = {"min": times, "C": 1.0 - reactant - intermediate, "A": reactant}
    unknown = ds.Parameters(
        {name: ds.Parameter(0.6, scale="log") for name in CONSTANTS}, {"A": 1.0, "B": 0.0, "C": 0.0}
    )
    noisy = {
        name: column * (1.0 if name == "min" else np.array([1.02, 0.98, 1.01, 0.99]))
        for name, column in table.items()
    }
    fitted = ds.fit(MADE["ODE"](), noisy, unknown, STEPPING, noise=LogNormal())
    assert fitted.converged
    assert fitted.estimate == pytest.approx({"first": 0.9, "second": 0.4}, rel=0.05)
    bands = fitted.prediction([2.0])
    np.testing.assert_allclose(bands.value[0], [table["C"][2], table["A"][2]], rtol=0.05)
    assert min(ds.taylor(fitted.functional, [-0.2, -0.8], hessian=True)) > 2.9


def growth():
    """Return the growth of biomass X on substrate S."""
    return ds.ODE(
        lambda t, u, p: np.array([-p[0] * u[0], p[1] * p[0] * u[0]]), ["S", "X"], ["rate", "yield"]
    )


GROWTH = ds.Parameters(
    {"rate": ds.Parameter(1.0, scale="log"), "yield": ds.Parameter(1.0, scale="log")}, [1.0, 0.0]
)
CULTURE = {"time": TIMES, "X": 0.8 * (1 - np.exp(-0.7 * TIMES)), "S": np.exp(-0.7 * TIMES)}
TRUE_GROWTH = {"rate": 0.7, "yield": 0.8}


def as_csv(table, folder):
    path = folder / "culture.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    return path


TABLES = {
    "dict": lambda table, _: table,
    "pandas": lambda table, _: pd.DataFrame(table),
    "pandas, times as index": lambda table, _: pd.DataFrame(table).set_index("time"),
    "CSV": as_csv,
    "structured array": lambda table, _: np.rec.fromarrays([*table.values()], names=[*table]),
}


@pytest.mark.parametrize("observe", [None, ["S", "X"], ["X", "S"], [0, 1]])
@pytest.mark.parametrize("kind", TABLES)
def test_named_columns_meet_the_unknowns_of_their_names(kind, observe, tmp_path):
    """Truth: the numbers that the columns were made with."""
    table = TABLES[kind](CULTURE, tmp_path)
    fitted = ds.fit(growth(), table, GROWTH, STEPPING, observe=observe, noise=Normal(0.01))
    assert fitted.estimate == pytest.approx(TRUE_GROWTH, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("observe", [None, ["S", "X"]])
def test_experiments_arrays_with_names_and_costs_go_by_names_too(observe):
    """Truth: the numbers that the columns were made with."""
    known = {"noise": Normal(0.01), "observe": observe}
    experiments = [ds.Experiment(CULTURE, STEPPING), ds.Experiment(CULTURE, STEPPING)]
    values = np.column_stack([CULTURE["X"], CULTURE["S"]])
    founds = [
        ds.fit(growth(), experiments, GROWTH, **known),
        ds.fit(growth(), values, GROWTH, STEPPING, times=TIMES, columns=["X", "S"], **known),
    ]
    for computed in founds:
        assert computed.estimate == pytest.approx(TRUE_GROWTH, rel=1e-5)
    frame = pd.DataFrame(CULTURE)[["X", "S"]]
    parts = [
        ds.Reduced(growth(), ds.LeastSquares(TIMES, data, 0.01, observe=seen), STEPPING, GROWTH)
        for data, seen in ((frame, observe), (values, ["X", "S"]))
    ]
    best = ds.minimize(Joint(parts))
    np.testing.assert_allclose(np.exp(best.x), [0.7, 0.8], rtol=1e-4)


@pytest.mark.slow
def test_one_stepping_serves_experiments_without_their_own():
    """Truth: the numbers that the columns were made with."""
    short = {name: column[:2] for name, column in CULTURE.items()}
    own = ds.Experiment(short, ds.Stepping((0.0, 1.0), "rk4", dt=0.05))
    known = {"noise": Normal(0.01)}
    for experiments in (
        [ds.Experiment(CULTURE), ds.Experiment(CULTURE)],
        [ds.Experiment(CULTURE), own],
    ):
        fitted = ds.fit(growth(), experiments, GROWTH, STEPPING, **known)
        assert fitted.estimate == pytest.approx(TRUE_GROWTH, rel=1e-5)
    with pytest.raises(ds.InputError, match=r"experiments\[1\] has no stepping"):
        ds.fit(growth(), [own, ds.Experiment(short)], GROWTH)
    with pytest.raises(ds.InputError, match=r"stepping= beside experiments"):
        ds.fit(growth(), [own, own], GROWTH, STEPPING)


def test_a_prior_of_logarithms_says_what_it_expects():
    prior = ds.Prior([math.log(0.6), 0.0], [0.2, math.log(2)], names=["eff", "k"], scale="log")
    assert repr(prior) == (
        "Prior of logarithms: eff about 0.6 (0.491 to 0.733), k about 1 (0.5 to 2)"
    )
    assert "scale='linear'" in repr(ds.Prior([0.5], 0.1))


@pytest.mark.parametrize(
    ("names", "observe", "message"),
    [
        (["X [g/L]", "S [g/L]"], None, r'column "X \[g/L\]" would be compared with .* "S"'),
        (["x", "s"], ["S", "X"], r'column "x" would be compared with the unknown "S"'),
        (["X", "S"], ["S"], r"columns X, S, but S are observed(.|\n)*columns=\['S'\]"),
    ],
)
def test_columns_that_would_meet_other_unknowns_are_refused(names, observe, message):
    table = dict(zip(["time", *names], CULTURE.values(), strict=True))
    with pytest.raises(ds.InputError, match=message):
        ds.fit(growth(), table, GROWTH, STEPPING, observe=observe)


@pytest.mark.parametrize(
    "names", [["S [g/L]", "X [g/L]"], ["s", "x"], ["substrate", "biomass"], ["S_mean", "X_mean"]]
)
def test_columns_in_the_order_of_the_unknowns_may_have_names_of_their_own(names):
    columns = (CULTURE["time"], CULTURE["S"], CULTURE["X"])
    table = dict(zip(["time", *names], columns, strict=True))
    fitted = ds.fit(growth(), table, GROWTH, STEPPING, noise=Normal(0.01))
    assert fitted.estimate == pytest.approx(TRUE_GROWTH, rel=1e-5)


@pytest.mark.parametrize(
    "clock", ["time", "t", "Time [h]", "time_h", "t (min)", "year", "hours", "date", "Day"]
)
@pytest.mark.parametrize("kind", ["dict", "pandas", "CSV", "structured array"])
def test_a_column_of_times_that_is_not_the_first_is_named(kind, clock, tmp_path):
    """The first one was taken for the times: a rate of 4e-8 in the place of 0.5."""
    if kind == "structured array" and not clock.isidentifier():
        clock = "time"
    table = TABLES[kind]({"mass": np.exp(-0.5 * TIMES), clock: TIMES}, tmp_path)
    nameless = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    start = ds.Parameters({"rate": ds.Parameter(0.7, scale="log")}, [1.0])
    with pytest.raises(ds.InputError, match=r'"mass", out of mass, (.|\n)*try: times="') as refused:
        ds.fit(nameless, table, start, STEPPING)
    assert f'times="{clock}"' in str(refused.value)
    fitted = ds.fit(nameless, table, start, STEPPING, times=clock, noise=Normal(0.01))
    assert fitted.estimate["rate"] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("table", "more", "message"),
    [
        ({"mass": TIMES, "age": TIMES}, {}, r'"mass", has the name of an unknown'),
        ({"mass": TIMES, "age": TIMES}, {"columns": ["mass"]}, r"first one by default"),
    ],
)
def test_measurements_are_not_taken_for_times(table, more, message):
    with pytest.raises(ds.InputError, match=message):
        ds.fit(decay(), table, rates(), STEPPING, **more)


@pytest.mark.slow
@pytest.mark.parametrize("names", [("age", "T"), ("t", "day length"), ("age", "minimum")])
def test_other_names_are_no_times(names):
    table = dict(zip(names, (TIMES, np.exp(-0.5 * TIMES)), strict=True))
    fitted = ds.fit(decay(), table, rates(), STEPPING, noise=Normal(0.01))
    assert fitted.estimate["rate"] == pytest.approx(0.5, rel=1e-5)


def test_events_find_unknowns_by_the_names_of_the_problem():
    fall = ds.ODE(lambda t, u, p: np.array([u[1], -p[0]]), ["height", "speed"], ["gravity"])
    entry = {"kind": "impact", "position": "height", "speed": "speed", "restitution": 0.5}
    run = ds.solve(
        with_events(fall, [entry]), [1.0, 0.0], [2.0], ds.Stepping((0.0, 1.5), "rk4", dt=0.05)
    )
    assert run.crossings[0].t == pytest.approx(1.0)
    with pytest.raises(ds.InputError, match=r'no unknown "hight"(.|\n)*"height"'):
        with_events(fall, [{**entry, "position": "hight"}])


def test_what_has_no_names_says_how_to_give_them():
    nameless = ds.ODE(lambda t, u, p: -u, size=2)
    with pytest.raises(ds.InputError, match=r'no names(.|\n)*try: ODE\(f, size=\["mass", \.\.\.\]'):
        nameless.state_indices("mass")
    with pytest.raises(ds.InputError, match=r"u0 is a mapping(.|\n)*size=\['a', 'b'\]"):
        ds.solve(nameless, {"a": 1.0, "b": 2.0}, None, STEPPING)


# ---- parameters of single experiments ------------------------------------------------------------

VOLUMES, CLEARANCE, DOSE = (20.0, 30.0, 25.0), 4.0, 100.0
HOURS = np.array([1.0, 2.0, 4.0, 8.0])
BODY = ds.Stepping((0.0, 8.0), "rk4", dt=0.25)
SCATTER = 0.05 * RNG.standard_normal((3, 4))


def body(make=ds.ODE):
    return make(lambda t, u, p: -p[0] / p[1] * u, ["amount"], ["CL", "V"])


def concentration(t, u, p):
    return u / p[1]


def patients(names=("a", "b", "c"), scatter=SCATTER, **extra):
    return [
        ds.Experiment(
            {"h": HOURS, "c": DOSE / volume * np.exp(-CLEARANCE / volume * HOURS + noise)},
            BODY,
            parameters={"V": ds.Parameter(22.0, scale="log", **extra)},
            name=name,
        )
        for name, volume, noise in zip(names, VOLUMES, scatter, strict=True)
    ]


def shared():
    return ds.Parameters({"CL": ds.Parameter(3.0, scale="log"), "V": ds.Parameter(20.0)}, [DOSE])


@pytest.mark.slow
def test_patients_have_volumes_of_their_own():
    fitted = ds.fit(body(), patients(), shared(), observe=concentration, noise=LogNormal())
    assert fitted.converged
    assert [*fitted.estimate] == ["CL", "V (a)", "V (b)", "V (c)"]
    assert "V (b)" in repr(fitted)

    def model(x):
        volumes = np.exp(x[1:])[:, None]
        return np.log(DOSE / volumes) - np.exp(x[0]) / volumes * HOURS

    data = np.log([patient.data["c"] for patient in patients()])
    x = np.log([CLEARANCE, *VOLUMES])
    for _ in range(20):  # Gauss-Newton, by differences
        steps = 1e-6 * np.eye(4)
        jacobian = np.array([(model(x + h) - model(x - h)).ravel() / 2e-6 for h in steps]).T
        x = x + np.linalg.lstsq(jacobian, (data - model(x)).ravel())[0]
    np.testing.assert_allclose(np.log([*fitted.estimate.values()]), x, atol=1e-5)
    later = fitted.prediction([3.0], experiment=1)
    np.testing.assert_allclose(np.log(later.value[0, 0]), np.interp(3.0, HOURS, model(x)[1]), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [LogNormal(), LogNormal(0.1)])
def test_derivatives_with_own_parameters_are_exact(noise):
    prior = ds.Prior([3.0], 0.3, names=["V"], scale="log")
    functional = likelihood(
        body(), patients(), shared(), observe=concentration, noise=noise, priors=prior
    )
    x = functional.start()
    assert x.getSize() == 4
    assert min(ds.taylor(functional, x)) > 1.9
    assert min(ds.taylor(functional, x, hessian=True)) > 2.9
    dx = [0.3, -0.8, 0.5, 0.1]
    vector = x.duplicate()
    vector.setArray(dx)
    hessian = functional.hessian(x)
    product = gather(functional.hessian_product(x, vector))
    np.testing.assert_allclose(product, hessian @ dx, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-11, atol=1e-11)
    assert np.count_nonzero(np.abs(hessian[1, 2:]) > 1e-12) == (0 if noise.sigma == 0.1 else 2)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["numpy", "traced"])
def test_own_parameters_are_dual_in_both_orders(style):
    """Tangents against adjoints, of each patient and all of them; products against each other."""
    made = body(ds.ODE if style == "numpy" else ds.trace)
    functional = likelihood(made, patients(), shared(), observe=concentration, noise=LogNormal(0.1))
    rng = np.random.default_rng(8)
    x = functional.start()
    size = x.getSize()
    assert size > 2
    x = gather(x) + 0.1 * rng.normal(size=size)
    dx, other = rng.normal(size=(2, size))
    for value in (functional, *functional.experiments):
        gradient = gather(value.gradient(x))
        assert value.derivative(x, dx) == pytest.approx(gradient @ dx, rel=1e-12)
        product, swapped = (gather(value.hessian_product(x, v)) for v in (dx, other))
        assert product @ other == pytest.approx(swapped @ dx, rel=1e-12)
    for k, experiment in enumerate(functional.experiments):
        # what belongs to another patient counts for nothing
        counts = gather(experiment.gradient(x)) != 0.0
        np.testing.assert_array_equal(counts, [True, *(np.arange(3) == k)])


def test_a_prior_of_an_own_parameter_is_that_of_each_patient_or_of_one():
    options = {"observe": concentration, "noise": LogNormal(0.1)}
    x = np.log([3.0, 22.0, 23.0, 24.0])

    def value(*names):
        priors = [ds.Prior([20.0], 2.0, names=[name]) for name in names]
        return likelihood(body(), patients(), shared(), priors=priors, **options).value(x)

    values = [0.5 * ((volume - 20.0) / 2.0) ** 2 for volume in (22.0, 23.0, 24.0)]
    assert value("V") - value() == pytest.approx(sum(values))
    assert value("V (b)") - value() == pytest.approx(values[1])
    assert value("CL") - value() == pytest.approx(0.5 * (17.0 / 2.0) ** 2)
    with pytest.raises(ds.InputError, match=r'prior names parameter "V \(d\)"'):
        value("V (d)")


@pytest.mark.slow
def test_experiments_of_one_name_share_their_own_parameters():
    fitted = ds.fit(
        body(), patients(["a", "b", "a"]), shared(), observe=concentration, noise=LogNormal()
    )
    assert [*fitted.estimate] == ["CL", "V (a)", "V (b)"]


@pytest.mark.slow
def test_a_number_in_an_experiment_takes_the_place_of_what_others_fit():
    known = patients()
    known[0] = ds.Experiment(known[0].data, BODY, parameters={"V": VOLUMES[0]}, name="a")
    known[1] = ds.Experiment(known[1].data, BODY)
    known[2] = ds.Experiment(known[2].data, BODY)
    functional = likelihood(body(), known, shared(), observe=concentration, noise=LogNormal(0.1))
    assert functional.start().getSize() == 2
    assert functional.experiments[0].control.unpack(body(), functional.start())[1][1] == 20.0
    assert min(ds.taylor(functional, hessian=True)) > 2.9


# ---- columns of words ----------------------------------------------------------------------------


def cohort(kind, tmp_path):
    columns = {"time": [1.0, 2.0, 3.0], "sex": ["f", "f", "f"], "y": [0.62, None, 0.23]}
    if kind == "mapping":
        return columns
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(columns)
    path = tmp_path / "cohort.csv"
    path.write_text("time,sex,y\n1,f,0.62\n2,f,NA\n3,f,0.23\n")
    return path


@pytest.mark.parametrize("kind", ["mapping", "pandas", "csv"])
def test_columns_of_words_are_named_and_need_not_be_observed(kind, tmp_path):
    problem = ds.ODE(lambda t, u, p: -p[0] * u, 1, ["rate"])
    control = ds.Parameters({"rate": ds.Parameter(1.0, scale="log")}, [1.0])
    arguments = (problem, cohort(kind, tmp_path), control, ds.Stepping((0.0, 3.0), "rk4", dt=0.1))
    with pytest.raises(ds.InputError, match=r'column "sex" holds words, as \'f\'(.|\n)*columns='):
        ds.fit(*arguments, noise=Normal(0.1))
    fitted = ds.fit(*arguments, columns=["y"], noise=Normal(0.1))
    assert fitted.data.count == 2


# ---- trial points that make the equations stiff --------------------------------------------------


def relaxation():
    counted = []

    def fall(t, u, p):
        counted.append(t)
        return -p[0] * (u - np.cos(t))

    problem = ds.ODE(fall, 1, ["rate"], jacobian=lambda t, u, p: np.array([[-p[0]]]))
    misfit = ds.LeastSquares([1.0, 2.0], [0.5, 0.2], 1e-4)
    control = ds.Parameters({"rate": ds.Parameter(0.3, scale="log")}, [0.0])
    stepping = ds.Stepping((0.0, 2.0), "rk6vr", rtol=1e-6)
    return ds.Reduced(problem, misfit, stepping, control), counted


@pytest.mark.slow
def test_trials_take_no_more_than_a_multiple_of_the_best_steps():
    functional, counted = relaxation()
    functional.value([math.log(0.3)])
    functional.limit_steps(limited=True)
    with pytest.raises(ds.SolveError, match=r"after 1000 steps .*stiff(.|\n)*esdirk5"):
        functional.value([math.log(1e6)])
    assert len(counted) < 20_000  # without a limit some 4 000 000
    functional.limit_steps(limited=False)
    assert functional.trajectory([math.log(5e3)]).effort.steps > 1000


def test_minimisers_limit_their_trials_and_nothing_afterwards(monkeypatch):
    functional, _ = relaxation()
    asked = []

    def limit_steps(*, limited):
        asked.append(limited)

    monkeypatch.setattr(functional, "limit_steps", limit_steps)
    result = ds.minimize(functional, method="lmvm")
    assert result.converged
    assert asked[0]
    assert asked[1:-1].count(False) == 0
    assert not asked[-1]


def test_steps_that_stability_holds_small_are_told():
    problem = ds.ODE(lambda t, u, p: -p[0] * (u - np.cos(t)), 1, ["rate"])
    stepping = ds.Stepping((0.0, 10.0), "rk6vr", rtol=1e-4, max_steps=300)
    message = r"after 300 steps .*: the equations are stiff.*decay of 1e-05(.|\n)*esdirk5"
    with pytest.raises(ds.SolveError, match=message):
        ds.solve(problem, [0.0], [1e5], stepping)


def reaction(t, u, p):
    free, substrate, bound, _ = u
    binding = p[0] * free * substrate - p[1] * bound
    made = p[2] * bound
    return np.array([made - binding, -binding, binding - made, made])


def epidemic(t, u, p):
    ill = p[0] * u[0] * u[1] / 763.0
    return np.array([-ill, ill - p[1] * u[1]])


FAR_OFF = {
    "Michaelis-Menten": (lambda t, u, p: -p[0] * u / (p[1] + u), [2.0], [1.0, 0.5], 5.0),
    "enzyme": (reaction, [0.3, 1.0, 0.0, 0.0], [10.0, 1.0, 2.0], 6.0),
    "epidemic": (epidemic, [762.0, 1.0], [1.7, 0.45], 14.0),
}


@pytest.mark.parametrize("method", ["rk5dp", "auto", "esdirk5"])
@pytest.mark.parametrize("name", FAR_OFF)
def test_estimates_are_right_from_starts_up_to_a_hundred_times_off(name, method):
    """Steps along what data do not feel used to end where no data are felt any more."""
    f, u0, true, end = FAR_OFF[name]
    model = ds.trace(f, size=len(u0), parameters=[f"p{i}" for i in range(len(true))])
    times = np.linspace(0.0, end, 21)[1:]
    run = ds.solve(model, u0, true, ds.Stepping((0.0, end), "rk8vr", rtol=1e-11), t_eval=times)
    exact = np.array([run.at(t) for t in times])
    spread = exact.std(axis=0)
    noise = 0.03 * np.random.default_rng(1).normal(size=exact.shape)
    values = exact / spread + noise

    def estimate(start):
        entries = {f"p{i}": ds.Parameter(value, scale="log") for i, value in enumerate(start)}
        stepping = ds.Stepping((0.0, end), method, rtol=1e-8)
        fitted = ds.fit(
            model,
            values,
            ds.Parameters(entries, u0),
            stepping,
            times=times,
            observe=lambda t, u, p: u / spread,
        )
        assert fitted.converged
        return np.array(list(fitted.estimate.values())), fitted.result.evaluations

    expected, _ = estimate(true)
    for seed in range(6):
        decades = np.random.default_rng([seed, len(true)]).uniform(-2.0, 2.0, len(true))
        parameters, evaluations = estimate(true * 10.0**decades)
        np.testing.assert_allclose(parameters, expected, rtol=1e-4)
        assert evaluations <= 60
