"""The benchmark suite runs: tiny settings, no times asserted."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from daeosens.tracing import separate

ROOT = Path(__file__).parents[1]
RUN = ROOT / "scripts" / "bench" / "run.py"


def bench(*arguments):
    """Run the command; return what it printed."""
    # numbers, not times, are asked for: nothing is compiled by numba, and no line is counted
    inherited = {key: os.environ[key] for key in os.environ if not key.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, str(RUN), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=inherited | {"PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "tolerance", "own"),
    [
        ("lotka_volterra", 2e-3, ["daeosens", "C on PETSc TSAdjoint", "finite differences"]),
        ("stiff", 2e-1, ["daeosens"]),
        ("gray_scott", 1e-9, ["daeosens", "C on PETSc TSAdjoint"]),
        ("memory", 1e-12, ["daeosens, stages", "daeosens, states", "C on PETSc TSAdjoint"]),
    ],
)
def test_case_has_right_derivatives_or_names_what_is_missing(tmp_path, case, tolerance, own):
    table = bench(case, "--quick", "--output", tmp_path)
    results = json.loads((tmp_path / "benchmarks" / f"{case}.json").read_text())
    rows = results["rows"]
    for row in rows:
        if row["note"]:
            assert row["contestant"] not in own
            reasons = (
                "missing: No module named",
                "missing: libsundials-dev",
                "explicit methods only",
            )
            assert row["note"].startswith(reasons), row["note"]
        else:
            # what others leave at the same tolerance is theirs
            assert row["error"] < (tolerance if row["contestant"] in own else 1.0), row
            assert row["milliseconds"] > 0
            assert row["turns"] == 1
        assert row["contestant"] in table
    assert set(own) <= {row["contestant"] for row in rows}
    page = (tmp_path / "benchmarks.md").read_text()
    assert f"run.py {case} --quick" in page
    assert results["machine"]["processor"] in page
    images = [line.split("](")[1].rstrip(")") for line in page.splitlines() if line[:2] == "!["]
    assert images
    assert all((tmp_path / image).exists() for image in images)


@pytest.mark.slow
def test_unknown_case_is_refused():
    with pytest.raises(AssertionError, match=r"no case lotka; there are: lotka_volterra"):
        bench("lotka")


@pytest.mark.slow
def test_settings_that_there_are_not_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(AssertionError, match=r"no setting of stiff has tolerance=1e-5"):
        bench("stiff", "--where", "tolerance=1e-5", "--output", tmp_path)
    assert not list(tmp_path.iterdir())


def test_settings_are_chosen_as_tables_write_them(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    case = importlib.import_module("cases").LOTKA_VOLTERRA
    choice = importlib.import_module("run").chosen(case, ["N=10", "tolerance=1e-4"], quick=False)
    assert choice == ({"N": 10, "tolerance": 1e-4},)


def test_numbers_are_written_without_needless_exponents(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    number = importlib.import_module("tables").number
    cases = [(16612.0, ".3g"), (190.0, ".2g"), (0.0788, ".3g"), (1e-4, ".4g"), (1.23e-3, ".3g")]
    assert [number(*case) for case in cases] == ["16600", "190", "0.0788", "1e-4", "1.23e-3"]
    assert [number(value, ".0e") for value in (0.0, 4e-12, 1.0, None)] == ["0", "4e-12", "1", ""]


def test_the_page_of_bilevel_estimation_has_the_table_of_its_numbers(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    program = importlib.import_module("bilevel")
    rows = json.loads(program.NUMBERS.read_text())
    assert program.table(rows) in program.PAGE.read_text()
    assert {row["study"] for row in rows} <= {*program.STUDIES}


def test_the_page_of_model_discovery_has_the_table_of_its_numbers(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    program = importlib.import_module("discovery")
    rows = json.loads(program.NUMBERS.read_text())
    assert program.table(rows) in program.PAGE.read_text()
    assert {row["case"] for row in rows} <= {*program.CASES}
    exact = [row for row in rows if row["noise"] == 0.0]
    assert all(row["found"] == row["true"] and row["other"] == 0 for row in exact)


def test_published_problems_have_the_parameters_that_they_name(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    problems = importlib.import_module("bilevel_problems")
    for study in problems.STUDIES.values():
        assert {*study.linear} | {*study.spans} == {*study.truth}
        assert separate(study.model()).linear([*study.truth], None) == study.linear
        assert study.starts.shape == (len(study.known), len(study.states))


def test_reasons_name_what_their_settings_share(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    notes = importlib.import_module("tables").notes
    row = importlib.import_module("contest").Row
    settings = [{"N": n, "tolerance": tol} for n in (3, 9) for tol in (1e-4, 1e-6)]
    slow = [
        row(setting, "other", "full", note="slow" * (setting["N"] == 9)) for setting in settings
    ]
    wrong = [
        row(setting, "other", "full", note="wrong" * (setting == settings[0]))
        for setting in settings
    ]
    assert notes(slow) == ["other: slow (N 9)"]
    assert notes(wrong) == ["other: wrong (N 3, tolerance 1e-4)"]


def rows_of(program, output, monkeypatch, *words):
    """Run a program of its own in this process; return what it writes."""
    monkeypatch.syspath_prepend(str(RUN.parent))
    monkeypatch.setattr(sys, "argv", [program, "--output", str(output), *words])
    importlib.import_module(program).main()
    return json.loads(output.read_text())


@pytest.mark.slow
def test_compiled_steps_are_those_of_the_program_in_c(tmp_path, monkeypatch):
    """The program compares numbers of steps and gradients itself."""
    rows = rows_of("compiled_steps", tmp_path / "rows.json", monkeypatch, "--repeat", "0")
    assert [
        (row["model"], row["method"], row["steps"]) for row in rows if row["task"] == "step"
    ] == [
        ("oscillator", "rk4", 1000),
        ("oscillator", "rk5dp", 311),
        ("species", "rk4", 1000),
        ("species", "rk5dp", 118),
    ]
    calls = [row for row in rows if row["task"] != "step"]
    assert [row["task"] for row in calls] == ["run", "run and gradient", "Reduced"] * 2
    assert all(row["ratio"] == row["daeosens"] / row["c"] > 0 for row in calls)


def test_sweeps_in_blocks_are_those_by_steps(tmp_path, monkeypatch):
    words = ("--repeat", "1", "--sizes", "4")
    (row,) = rows_of("block_adjoint", tmp_path / "rows.json", monkeypatch, *words)
    assert row["n"] == 4
    assert row["difference"] < 1e-12


def test_two_parts_need_fewer_operations_than_one(tmp_path, monkeypatch):
    words = ("--repeat", "1", "--points", "16", "--steps", "2")
    rows = rows_of("imex", tmp_path / "rows.json", monkeypatch, *words)
    assert [row["method"] for row in rows] == ["arkimex3", "kencarp3", "arkimex4", "esdirk4"]
    for ours, theirs in (rows[:2], rows[2:]):
        assert ours["error"] < 0.1
        assert 3 * ours["megaflops"] < theirs["megaflops"]


CONTESTANT = """
import numpy as np

def prepare(setting):
    if {name!r} == "refusing":
        raise NotImplementedError("not for me")
    return {{"task": lambda: {call}}}
"""


def test_what_comes_before_a_task_is_not_timed(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    from worker import ready, timed  # noqa: PLC0415

    task = (lambda: time.sleep(0.2) or 3, lambda value: value + 1)
    assert ready(task)() == 4
    assert ready(lambda: 5)() == 5
    assert timed(task) < 0.2


@pytest.mark.slow
def test_contestants_take_turns_and_failures_are_lines(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    from contest import Contestant, Limits, hold  # noqa: PLC0415

    log = tmp_path / "log"
    log_call = "open({!r}, 'a').write({!r}) and np.array([{}])"
    calls = {
        "first": log_call.format(str(log), "a", 1.0),
        "second": log_call.format(str(log), "b", 1.5),
        "refusing": "0",
        "failing": "1 / 0",
        "dying": "__import__('os')._exit(3)",
    }
    for name, call in calls.items():
        (tmp_path / f"{name}.py").write_text(CONTESTANT.format(name=name, call=call))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    contestants = tuple(Contestant(name, name) for name in (*calls, "absent"))
    rows = hold(contestants, ({"size": 1},), Limits(turns=2, budget=0.0, patience=60.0))
    by_name = {row.contestant: row for row in rows}
    assert by_name["second"].error == 0.5
    assert by_name["second"].ratio == by_name["second"].milliseconds / by_name["first"].milliseconds
    notes = [by_name[name].note for name in ("refusing", "failing", "dying", "absent")]
    assert notes == [
        "not for me",
        "failed: ZeroDivisionError: division by zero",
        "ended by itself:",
        "missing: No module named 'absent'",
    ]
    turns = log.read_text()[4:]  # after the first calls and the results
    assert [turns[0], turns[-1]] == ["a", "b"]
    assert turns.count("ab") == 2
    assert turns.count("ba") == 1


def test_pollution_mechanism_ends_at_the_published_state(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    from stiff import SYSTEMS  # noqa: PLC0415

    system = SYSTEMS["air pollution"]
    solution = solve_ivp(
        lambda _t, u: system.rhs(u, system.parameters),
        (0.0, system.end),
        system.start,
        "Radau",
        rtol=1e-9,
        atol=1e-13,
    )
    # Mazzia, Magherini, Test Set for Initial Value Problem Solvers, 2008: POLLU
    published = [0.5646255480022769e-1, 0.1342484130422339, 0.4139734331099427e-8]
    np.testing.assert_allclose(solution.y[:3, -1], published, rtol=1e-7)


def test_gri_mech_has_the_published_rates_and_keeps_atoms(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    from stiff import gri_mech  # noqa: PLC0415

    known, made = gri_mech.mechanism(), gri_mech.isothermal()
    assert (len(known.species), len(known.reactions)) == (53, 325)
    u = np.random.default_rng(0).random(53)
    rates = np.array(made.rhs(u, made.parameters))
    assert np.abs(rates @ known.atoms).max() < 1e-14 * np.abs(rates).max()
    left, right, backward, net = made.tables()
    more = np.append(u, 1.0)
    speeds = more[left].prod(axis=1) - backward * more[right].prod(axis=1)
    np.testing.assert_allclose(net @ (speeds * made.parameters), rates, atol=1e-9)
    # Cantera 3.2.0 with its own file of the mechanism, at 1500 K and 1 atm [mol / cm^3, s]
    mixture = np.array(made.start) * 101325.0 / (gri_mech.GAS_CONSTANT * 1500.0) * 1e-6
    published = {
        2: (1.7827657581e12, 1.1537823156),  # O + H2 = H + OH
        11: (2.5182247685e9, 6.2051462158e15),  # O + CO (+M) = CO2 (+M): Lindemann
        51: (6.0332811541e12, 1.9634905015e13),  # H + CH3 (+M) = CH4 (+M): Troe
        82: (1.7203393393e-1, 5.4827075501e-2),  # H2 + CO (+M) = CH2O (+M): Troe
    }
    for number, (rate, equilibrium) in published.items():
        reaction = known.reactions[number]
        assert gri_mech.forward_rate(reaction, 1500.0, mixture) == pytest.approx(rate, rel=1e-9)
        assert gri_mech.equilibrium(reaction, 1500.0) == pytest.approx(equilibrium, rel=1e-8)


def test_time_to_an_accuracy_lies_on_lines_between_measured_points(monkeypatch):
    monkeypatch.syspath_prepend(str(RUN.parent))
    time_to = importlib.import_module("tables").time_to
    points = [(1e-2, 1.0), (1e-4, 4.0), (2e-4, 5.0), (1e-8, 100.0)]  # one is worse and later
    assert time_to(1e-1, points) == 1.0  # the loosest tolerance is better than asked for
    assert np.isclose(time_to(1e-3, points), 2.0)
    assert time_to(1e-4, points) == 4.0
    assert time_to(1e-9, points) is None
