"""What ``import daeosens`` offers."""

import inspect
import subprocess
import sys
import textwrap

import pytest
from public_names import public_names

import daeosens

DOCUMENTED = {
    name: value
    for name, value in public_names().items()
    if callable(value) and not name.endswith(("Error", "Warning"))
}
MOST_AT_THE_TOP = 32


def test_names_are_sorted_and_few():
    assert daeosens.__all__ == sorted(set(daeosens.__all__), key=lambda n: (not n.isupper(), n))
    assert len(daeosens.__all__) <= MOST_AT_THE_TOP
    assert len(DOCUMENTED) > 70


def test_nobody_has_two_homes():
    values = [value for value in public_names().values() if callable(value)]
    assert len({id(value) for value in values}) == len(values)


@pytest.mark.whole
@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_an_example(name):
    """They are run by scripts/check."""
    assert "\n>>> " in inspect.getdoc(DOCUMENTED[name])


@pytest.mark.slow
def test_what_is_optional_is_not_needed():
    """Sweeps of traced models know their products, but not CasADi; sampling comes when used."""
    code = """
    import sys

    for name in ("casadi", "filelock", "matplotlib", "platformdirs"):
        sys.modules[name] = None  # as if it were not installed
    import daeosens as ds

    decay = ds.ODE(lambda t, u, p: -p[0] * u, size=1, parameters=["rate"])
    run = ds.solve(decay, [1.0], [0.5], ds.Stepping((0.0, 2.0), "rk4", dt=0.1))
    print(ds.adjoint(run, ds.Terminal(lambda t, u, p: u[0])).p.round(4))
    print("scipy.stats" in sys.modules)  # a fourth of the time that "import daeosens" takes
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[-0.7358]\nFalse\n", "")
