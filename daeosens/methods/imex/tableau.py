"""Coefficients of the IMEX methods: one tableau for the stiff part, another one for the rest.

The implicit part has one diagonal coefficient gamma but for the first stage, which is explicit; its
last stage has the weights of the solution (stiffly accurate), and it is L-stable.

Source
------
Kennedy, Carpenter, "Additive Runge-Kutta schemes for convection-diffusion-reaction equations",
Applied Numerical Mathematics 44, 2003: ARK3(2)4L[2]SA, ARK4(3)6L[2]SA and ARK5(4)8L[2]SA, the types
3, 4 and 5 of PETSc's TSARKIMEX.
Ascher, Ruuth, Spiteri, "Implicit-explicit Runge-Kutta methods for time-dependent partial
differential equations", Applied Numerical Mathematics 25, 1997: (2, 2, 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import sqrt
from types import MappingProxyType

import numpy as np

from daeosens.methods.esdirk.tableau import Esdirk


def _additive(
    order: int,
    gamma: float,
    implicit: Sequence[str],
    explicit: Sequence[str],
    b_embedded: str,
    c: Sequence[float],
) -> Esdirk:
    """Make a method with the same weights for both parts, from rows without their first entry.

    The rows of the implicit part have no diagonal either.  Row sums are the abscissae.
    """
    s = len(c)
    a, a_explicit = np.zeros((2, s, s))
    for i in range(1, s):
        a[i, 1 : i + 1] = [*_ratios(implicit[i - 1]), gamma]
        a_explicit[i, 1:i] = _ratios(explicit[i - 1])
        # from the row sums, so that rounding does not spoil consistency of the stages
        for rows in (a, a_explicit):
            rows[i, 0] = c[i] - rows[i, 1:].sum()
    rest = np.array(_ratios(b_embedded))
    embedded = np.array([1.0 - rest.sum(), *rest])
    return Esdirk(a, np.array(c), embedded, order, a_explicit, a[-1].copy())


def _ratios(text: str) -> list[float]:
    return [float(Fraction(ratio)) for ratio in text.split()]


_HALF = 1.0 - 1.0 / sqrt(2.0)
_DELTA = -1.0 / sqrt(2.0)

_SECOND = Esdirk(
    np.array([[0.0, 0.0, 0.0], [0.0, _HALF, 0.0], [0.0, 1.0 - _HALF, _HALF]]),
    np.array([0.0, _HALF, 1.0]),
    None,
    2,
    np.array([[0.0, 0.0, 0.0], [_HALF, 0.0, 0.0], [_DELTA, 1.0 - _DELTA, 0.0]]),
    np.array([_DELTA, 1.0 - _DELTA, 0.0]),
)

_GAMMA = 1767732205903 / 4055673282236

_THIRD = _additive(
    3,
    _GAMMA,
    [
        "",
        "-640167445237/6845629431997",
        "-4482444167858/7529755066697 11266239266428/11593286722821",
    ],
    [
        "",
        "788022342437/10882634858940",
        "-4246266847089/9704473918619 10755448449292/10357097424841",
    ],
    "-10771552573575/22201958757719 9247589265047/10645013368117 2193209047091/5459859503100",
    [0.0, 2 * _GAMMA, 0.6, 1.0],
)

_FOURTH = _additive(
    4,
    0.25,
    [
        "",
        "-1743/31250",
        "-654441/2922500 174375/388108",
        "-71443401/120774400 730878875/902184768 2285395/8070912",
        "0 15625/83664 69875/102672 -2260/8211",
    ],
    [
        "",
        "6889/62500",
        "-2731218467317/15368042101831 9408046702089/11113171139209",
        "-2682348792572/7519795681897 12662868775082/11960479115383 3355817975965/11060851509271",
        (
            "73281519250/8382639484533 552539513391/3454668386233 3354512671639/8306763924573 "
            "4040/17871"
        ),
    ],
    "0 178811875/945068544 814220225/1159782912 -3700637/11593932 61727/225920",
    [0.0, 0.5, 0.332, 0.62, 0.85, 1.0],
)

_FIFTH = _additive(
    5,
    0.205,
    [
        "",
        "-567603406766/11931857230679",
        "0 -110385047103/1367015193373",
        "0 30586259806659/12414158314087 -22760509404356/11113319521817",
        "0 638256894668/5436446318841 -1179710474555/5321154724896 -60928119172/8023461067671",
        (
            "0 25762820946817/25263940353407 -2161375909145/9755907335909 "
            "-211217309593/5846859502534 -4269925059573/7827059040749"
        ),
        (
            "0 0 22348218063261/9555858737531 -1143369518992/8141816002931 "
            "-39379526789629/19018526304540 32727382324388/42900044865799"
        ),
    ],
    [
        "",
        "677623207551/8224143866563",
        "0 1029933939417/13636558850479",
        "0 66114435211212/5879490589093 -54053170152839/4284798021562",
        (
            "0 15191511035443/11219624916014 -18461159152457/12425892160975 "
            "-281667163811/9011619295870"
        ),
        "0 21275331358303/2942455364971 -38145345988419/4862620318723 -1/8 -1/8",
        (
            "0 -40795976796054/6384907823539 177454434618887/12078138498510 "
            "782672205425/8267701900261 -69563011059811/9646580694205 7356628210526/4942186776405"
        ),
    ],
    "0 0 78070527104295/32432590147079 -548382580838/3424219808633 "
    "-33438840321285/15594753105479 3629800801594/4656183773603 4035322873751/18575991585200",
    [
        *(0.0, 0.41, float(Fraction("2935347310677/11292855782101"))),
        *(float(Fraction("1426016391358/7196633302097")), 0.92, 0.24, 0.6, 1.0),
    ],
)

TABLEAUX: Mapping[str, Esdirk] = MappingProxyType(
    {
        "ars222": _SECOND,
        "arkimex3": _THIRD,
        "arkimex4": _FOURTH,
        "arkimex5": _FIFTH,
    }
)
"""The methods by the names that ``Stepping`` knows."""
