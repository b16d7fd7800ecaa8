"""Functions that callbacks hold by names of their own: ``from math import sin``."""

import copy
import math
from functools import partial
from math import exp, sqrt
from math import sin as sine

import numpy as np
import pytest
import scipy.fft
from numpy import full, zeros
from numpy.linalg import inv
from scipy.fft import dct, idct
from scipy.special import logsumexp

from daeosens import ODE, InputError, Stepping, Terminal, adjoint, solve, trace
from daeosens.problem.automatic_derivatives import AutomaticJacobian

P = np.array([0.7, 0.4])
U0 = np.array([0.8, 0.3])
FIRST = Terminal(lambda t, u, p: u[0])
NAMES = {"sine": sine, "exp": exp, "sqrt": sqrt, "zeros": zeros, "full": full, "inv": inv}


def by_name(t, u, p):
    out = zeros(2)
    out[0] = p[0] * sine(u[1]) - exp(-u[0])
    out[1] = sqrt(u[0]) - p[1] * u[1] + 0.1 * sine(t)
    return out


def by_np(t, u, p):
    return np.stack(
        [p[0] * np.sin(u[1]) - np.exp(-u[0]), np.sqrt(u[0]) - p[1] * u[1] + 0.1 * np.sin(t)]
    )


def gradient(style, rhs):
    model = style(rhs, 2, 2)
    last = model.terminal(lambda t, u, p: u[0]) if style is trace else FIRST
    run = solve(model, U0, P, Stepping((0.0, 1.0), "rk4", dt=0.1))
    derivative = adjoint(run, last)
    return np.concatenate([derivative.u0, derivative.p])


def in_closure():
    local, fill = math.sin, np.zeros

    def rhs(t, u, p):
        out = fill(2)
        out[0] = p[0] * local(u[1]) - exp(-u[0])
        out[1] = sqrt(u[0]) - p[1] * u[1] + 0.1 * local(t)
        return out

    return rhs


class Model:
    def rates(self, t, u, p):
        return by_name(t, u, p)

    __call__ = rates


@pytest.mark.parametrize("style", [ODE, trace])
@pytest.mark.parametrize(
    "rhs",
    [
        by_name,
        in_closure(),
        Model().rates,
        Model(),
        partial(lambda f, t, u, p: f(t, u, p), by_name),
    ],
    ids=["module", "closure", "method", "object", "partial"],
)
def test_functions_may_be_imported_by_name(rhs, style):
    assert np.allclose(gradient(style, rhs), gradient(ODE, by_np), rtol=1e-12, atol=0.0)
    assert all(globals()[name] is function for name, function in NAMES.items())


def test_names_are_what_they_were_after_an_error():
    def fails(t, u, p):
        zeros(2)[0] = u[0]
        raise ValueError("of the callback")

    with pytest.raises(ValueError, match="of the callback"):
        gradient(ODE, fails)
    assert all(globals()[name] is function for name, function in NAMES.items())


def test_numbers_that_do_not_vary_go_to_the_functions_themselves():
    """A helper of another thread, or another library, may have the same module's names."""
    seen = []

    def rhs(t, u, p):
        seen.append(type(sine(0.5)))
        return -p[0] * u * sine(0.5)

    assert np.isfinite(gradient(ODE, rhs)).all()
    assert set(seen) == {float}


@pytest.mark.parametrize(
    ("rhs", "same"),
    [
        (
            lambda t, u, p: -p[0] * logsumexp(u) * u,
            lambda t, u, p: -p[0] * np.log(np.exp(u).sum()) * u,
        ),
        (
            lambda t, u, p: -p[0] * logsumexp([u[0], u[1]], b=[1.0, 2.0]) * u,
            lambda t, u, p: -p[0] * np.log(np.exp(u) @ [1.0, 2.0]) * u,
        ),
        (
            lambda t, u, p: scipy.fft.irfft(-p[0] * scipy.fft.rfft(u, workers=1), n=2),
            lambda t, u, p: -p[0] * u,
        ),
        (
            lambda t, u, p: idct(-p[0] * dct(u, norm="ortho"), norm="ortho"),
            lambda t, u, p: -p[0] * u,
        ),
        (
            lambda t, u, p: scipy.fft.idst(-p[0] * scipy.fft.dst(u[:, None], axis=0), axis=0)[:, 0],
            lambda t, u, p: -p[0] * u,
        ),
    ],
    ids=["logsumexp", "weights", "rfft", "dct", "dst"],
)
def test_functions_of_scipy_that_numpy_does_not_hand_on(rhs, same):
    assert np.allclose(gradient(ODE, rhs), gradient(ODE, same), rtol=1e-11, atol=1e-13)


def test_a_style_names_the_other_one_only_where_that_can():
    with pytest.raises(InputError) as refusal:
        gradient(ODE, lambda t, u, p: -p[0] * float(u[0]) * u)
    assert "trace" not in str(refusal.value)
    for rhs in (
        lambda t, u, p: -p[0] * np.sort(u),
        lambda t, u, p: -p[0] * u if u[0] > 0.0 else u,
        lambda t, u, p: -p[0] * scipy.fft.ifft(scipy.fft.fft(u)).real,
        lambda t, u, p: -p[0] * math.gamma(u[0]) * u,
    ):
        with pytest.raises(InputError, match="ODE"):
            gradient(trace, rhs)
        assert np.isfinite(gradient(ODE, rhs)).all()


lazy, loaded = sine, []


def rebinding(t, u, p):
    """Give a global name another function at the first call."""
    global lazy  # noqa: PLW0603
    if not loaded:
        lazy = doubled
        loaded.append(True)
    return np.stack([p[0] * lazy(u[1]), -p[1] * u[0]])


def doubled(x):
    return 2.0 * np.sin(x)


def test_a_name_that_a_callback_changes_itself_stays_what_it_made_of_it():
    slope = AutomaticJacobian(rebinding, 1, "rhs", "jacobian=callback")(0.0, U0, P)
    assert lazy is doubled
    assert slope[0, 1] == pytest.approx(2.0 * P[0] * np.cos(U0[1]), rel=1e-14)


def test_fresh_arrays_are_copied_as_arrays_are():
    def rhs(t, u, p):
        out = copy.copy(zeros(2))
        out[0], out[1] = p[0] * np.sin(u[1]), -p[1] * u[0]
        return out

    def plain(t, u, p):
        return np.stack([p[0] * np.sin(u[1]), -p[1] * u[0]])

    np.testing.assert_allclose(gradient(ODE, rhs), gradient(ODE, plain), rtol=1e-13)
