"""Functions of ``scipy.special``."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from daeosens.problem.derivative_arrays.arrays import FUNCTIONS, UFUNCS
from daeosens.problem.derivative_arrays.rules import (
    apart,
    elementwise,
    guarded_weight,
    singular,
    value_of,
    varies,
)


def _xlogy(ufunc: np.ufunc, x: Any, y: Any) -> Any:
    left, right = value_of(x), value_of(y)
    result = ufunc(left, right)
    terms: list[tuple[Any, Any]] = []
    if varies(x):
        # ``guarded_weight``: at x = 0 the weight log(y) may be infinite where its slope is 0
        terms.append((np.log(right), x.slopes))
    if varies(y):
        terms.append((left / right, y.slopes))
    return apart(result, terms, guarded_weight)


def _lower(polynomial: Any, n: Any, *arguments: Any) -> Any:
    """Return a polynomial of one degree less than n; 0 where n is 0."""
    return np.minimum(n, 1) * polynomial(np.maximum(n - 1, 0), *arguments)


def logarithm_of_sum(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Return ``scipy.special.logsumexp`` by functions of NumPy."""
    largest = np.max(a, axis=axis, keepdims=True)
    terms = np.exp(a - largest) if b is None else b * np.exp(a - largest)
    total = np.sum(terms, axis=axis, keepdims=keepdims)
    shift = largest if keepdims else np.sum(largest, axis=axis)
    if return_sign:
        return np.log(np.abs(total)) + shift, np.sign(total)
    return np.log(total) + shift


_ROOT_PI = math.sqrt(math.pi)

UFUNCS.update(
    {
        "gamma": elementwise(lambda x, r: r * special.psi(x)),
        "gammaln": elementwise(lambda x, r: special.psi(x)),
        "loggamma": elementwise(lambda x, r: special.psi(x)),
        "psi": elementwise(lambda x, r: special.zeta(2.0, x)),
        "_zeta": elementwise(None, lambda s, x, r: -s * special.zeta(s + 1.0, x)),
        "rgamma": elementwise(lambda x, r: -r * special.psi(x)),
        "poch": elementwise(
            lambda x, m, r: r * (special.psi(x + m) - special.psi(x)),
            lambda x, m, r: r * special.psi(x + m),
        ),
        "beta": elementwise(
            lambda a, b, r: r * (special.psi(a) - special.psi(a + b)),
            lambda a, b, r: r * (special.psi(b) - special.psi(a + b)),
        ),
        "betaln": elementwise(
            lambda a, b, r: special.psi(a) - special.psi(a + b),
            lambda a, b, r: special.psi(b) - special.psi(a + b),
        ),
        "gammainc": elementwise(
            None, lambda a, x, r: np.exp((a - 1.0) * np.log(x) - x - special.gammaln(a))
        ),
        "gammaincc": elementwise(
            None, lambda a, x, r: -np.exp((a - 1.0) * np.log(x) - x - special.gammaln(a))
        ),
        "betainc": elementwise(
            None,
            None,
            lambda a, b, x, r: x ** (a - 1.0) * (1.0 - x) ** (b - 1.0) / special.beta(a, b),
        ),
        "erf": elementwise(lambda x, r: 2.0 / _ROOT_PI * np.exp(-x * x)),
        "erfc": elementwise(lambda x, r: -2.0 / _ROOT_PI * np.exp(-x * x)),
        "erfcx": elementwise(lambda x, r: 2.0 * x * r - 2.0 / _ROOT_PI),
        "erfi": elementwise(lambda x, r: 2.0 / _ROOT_PI * np.exp(x * x)),
        "dawsn": elementwise(lambda x, r: 1.0 - 2.0 * x * r),
        "erfinv": elementwise(lambda x, r: 0.5 * _ROOT_PI * np.exp(r * r)),
        "erfcinv": elementwise(lambda x, r: -0.5 * _ROOT_PI * np.exp(r * r)),
        "ndtr": elementwise(lambda x, r: np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)),
        "log_ndtr": elementwise(lambda x, r: np.exp(-0.5 * x * x - r) / math.sqrt(2.0 * math.pi)),
        "ndtri": elementwise(lambda x, r: math.sqrt(2.0 * math.pi) * np.exp(0.5 * r * r)),
        "expit": elementwise(lambda x, r: special.expit(x) * special.expit(-x)),
        "log_expit": elementwise(lambda x, r: special.expit(-x)),
        "logit": singular(lambda x, r: 1.0 / (x * (1.0 - x))),
        "softplus": elementwise(lambda x, r: special.expit(x)),
        "xlogy": _xlogy,
        "xlog1py": elementwise(lambda x, y, r: np.log1p(y), lambda x, y, r: x / (1.0 + y)),
        "entr": elementwise(lambda x, r: -np.log(x) - 1.0),
        "rel_entr": elementwise(lambda x, y, r: np.log(x / y) + 1.0, lambda x, y, r: -x / y),
        "kl_div": elementwise(lambda x, y, r: np.log(x / y), lambda x, y, r: 1.0 - x / y),
        "jv": elementwise(
            None, lambda v, x, r: 0.5 * (special.jv(v - 1, x) - special.jv(v + 1, x))
        ),
        "yv": elementwise(
            None, lambda v, x, r: 0.5 * (special.yv(v - 1, x) - special.yv(v + 1, x))
        ),
        "iv": elementwise(
            None, lambda v, x, r: 0.5 * (special.iv(v - 1, x) + special.iv(v + 1, x))
        ),
        "kv": elementwise(
            None, lambda v, x, r: -0.5 * (special.kv(v - 1, x) + special.kv(v + 1, x))
        ),
        "j0": elementwise(lambda x, r: -special.j1(x)),
        "j1": elementwise(lambda x, r: 0.5 * (special.j0(x) - special.jv(2, x))),
        "y0": elementwise(lambda x, r: -special.y1(x)),
        "y1": elementwise(lambda x, r: 0.5 * (special.y0(x) - special.yv(2, x))),
        "i0": elementwise(lambda x, r: special.i1(x)),
        "i1": elementwise(lambda x, r: 0.5 * (special.i0(x) + special.iv(2, x))),
        "k0": elementwise(lambda x, r: -special.k1(x)),
        "k1": elementwise(lambda x, r: -0.5 * (special.k0(x) + special.kv(2, x))),
        "ellipk": elementwise(
            lambda m, r: (special.ellipe(m) - (1.0 - m) * r) / (2.0 * m * (1.0 - m))
        ),
        "ellipe": elementwise(lambda m, r: (r - special.ellipk(m)) / (2.0 * m)),
        "exp1": elementwise(lambda x, r: -np.exp(-x) / x),
        "expi": elementwise(lambda x, r: np.exp(x) / x),
        "expn": elementwise(None, lambda n, x, r: -special.expn(n - 1, x)),
        "_lambertw": elementwise(lambda z, k, tol, r: 1.0 / ((1.0 + r) * np.exp(r)), None, None),
        "hyp2f1": elementwise(
            None,
            None,
            None,
            lambda a, b, c, z, r: a * b / c * special.hyp2f1(a + 1.0, b + 1.0, c + 1.0, z),
        ),
        "hyp1f1": elementwise(
            None, None, lambda a, b, x, r: a / b * special.hyp1f1(a + 1.0, b + 1.0, x)
        ),
        "hyp0f1": elementwise(None, lambda v, z, r: special.hyp0f1(v + 1.0, z) / v),
        "eval_legendre": elementwise(
            None, lambda n, x, r: 0.5 * (n + 1.0) * _lower(special.eval_jacobi, n, 1.0, 1.0, x)
        ),
        "eval_jacobi": elementwise(
            None,
            None,
            None,
            lambda n, a, b, x, r: (
                0.5 * (n + a + b + 1.0) * _lower(special.eval_jacobi, n, a + 1.0, b + 1.0, x)
            ),
        ),
        "eval_gegenbauer": elementwise(
            None,
            None,
            lambda n, a, x, r: 2.0 * a * _lower(special.eval_gegenbauer, n, a + 1.0, x),
        ),
        # U_n is the Gegenbauer polynomial C_n of 1
        "eval_chebyt": elementwise(
            None, lambda n, x, r: n * _lower(special.eval_gegenbauer, n, 1.0, x)
        ),
        "eval_chebyu": elementwise(
            None, lambda n, x, r: 2.0 * _lower(special.eval_gegenbauer, n, 2.0, x)
        ),
        "eval_hermite": elementwise(
            None, lambda n, x, r: 2.0 * n * _lower(special.eval_hermite, n, x)
        ),
        "eval_hermitenorm": elementwise(
            None, lambda n, x, r: n * _lower(special.eval_hermitenorm, n, x)
        ),
        "eval_laguerre": elementwise(
            None, lambda n, x, r: -_lower(special.eval_genlaguerre, n, 1.0, x)
        ),
        "eval_genlaguerre": elementwise(
            None, None, lambda n, a, x, r: -_lower(special.eval_genlaguerre, n, a + 1.0, x)
        ),
        "spence": elementwise(lambda x, r: np.log(x) / (1.0 - x)),
        "sindg": elementwise(lambda x, r: math.pi / 180.0 * special.cosdg(x)),
        "cosdg": elementwise(lambda x, r: -math.pi / 180.0 * special.sindg(x)),
    }
)
FUNCTIONS[np.i0] = special.i0
