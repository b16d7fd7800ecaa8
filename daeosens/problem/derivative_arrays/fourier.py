"""Fourier transforms: linear functions along axes."""

# what users' arrays hold is known at run time only
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daeosens.problem.derivative_arrays.arrays import FUNCTIONS, DerivativeArray, as_array
from daeosens.problem.derivative_arrays.reductions import along_axis
from daeosens.problem.derivative_arrays.rules import axis_number


def _with_axes(function: Callable[..., Any], default: Any) -> Callable[..., Any]:
    """Return the rule of a linear function along several axes (FFTs)."""

    def rule(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        a = as_array(a)
        if axes is None:
            axes = tuple(range(-len(s), 0)) if s is not None else tuple(range(a.ndim))
        places = [axis_number(int(axis), a.ndim) for axis in axes]
        sizes = s if s is not None or "irfft" in function.__name__ else [a.shape[k] for k in places]
        if sizes is None:
            # inverse transforms of real signals have half the entries but one, as in NumPy
            sizes = [a.shape[k] for k in places[:-1]] + [2 * (a.shape[places[-1]] - 1)]
        value = function(a.value, sizes, places, norm)
        return DerivativeArray(value, function(a.slopes, sizes, places, norm))

    return rule


FUNCTIONS.update(
    {
        np.fft.fft: along_axis(np.fft.fft, -1, 2),
        np.fft.ifft: along_axis(np.fft.ifft, -1, 2),
        np.fft.rfft: along_axis(np.fft.rfft, -1, 2),
        np.fft.irfft: along_axis(np.fft.irfft, -1, 2),
        np.fft.hfft: along_axis(np.fft.hfft, -1, 2),
        np.fft.ihfft: along_axis(np.fft.ihfft, -1, 2),
    }
)
for _function, _default in (
    (np.fft.fft2, (-2, -1)),
    (np.fft.ifft2, (-2, -1)),
    (np.fft.rfft2, (-2, -1)),
    (np.fft.irfft2, (-2, -1)),
    (np.fft.fftn, None),
    (np.fft.ifftn, None),
    (np.fft.rfftn, None),
    (np.fft.irfftn, None),
):
    FUNCTIONS[_function] = _with_axes(_function, _default)
