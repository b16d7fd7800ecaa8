"""Coefficients of the ESDIRK methods: diagonally implicit Runge-Kutta methods for stiff problems.

One diagonal coefficient gamma but for the first stage, which is explicit; the last stage is the
solution (stiffly accurate), and the method forgets the fastest modes (L-stable).

Source
------
Kennedy, Carpenter, "Diagonally implicit Runge-Kutta methods for ordinary differential equations: a
review", NASA/TM-2016-219173, and "Diagonally implicit Runge-Kutta methods for stiff ODEs", Applied
Numerical Mathematics 146, 2019: ESDIRK3(2)5L[2]SA, 4(3I)6L[2]SA, 5(4I)8L[2]SA and 6(5)9L[2]SA.
The same, "Additive Runge-Kutta schemes for convection-diffusion-reaction equations", Applied
Numerical Mathematics 44, 2003: the implicit part of ARK3(2)4L[2]SA, which others call KenCarp3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import sqrt
from types import MappingProxyType

import numpy as np

from daeosens.petsc.vectors import Array

_ROOT = sqrt(2.0)


@dataclass(frozen=True, eq=False)
class Esdirk:
    """A method of s stages, and of an IMEX method the explicit one that belongs to it.

    Attributes
    ----------
    a : array [s, s]
        Lower triangular; its last row are the weights of the solution.
    c : array [s]
        Abscissae, none outside [0, 1]: beyond the end of a step the equations may be others.
    b_embedded : array [s] or None
        Weights of the solution of one order less, for both parts; None: no error estimate.
    order : int
        Order of accuracy for smooth problems; that of the stages is 2.
    a_explicit, b_explicit : array [s, s], [s], optional
        Of the explicit part, ``a_explicit`` strictly lower triangular.
    """

    a: Array
    c: Array
    b_embedded: Array | None
    order: int
    a_explicit: Array | None = None
    b_explicit: Array | None = None

    @property
    def b(self) -> Array:
        """The weights of the solution, for the implicit part."""
        return self.a[-1]

    @property
    def of_step(self) -> Esdirk:
        """The same: all stages are of this step."""
        return self

    @property
    def gamma(self) -> float:
        """The coefficient on the diagonal of all stages but the first."""
        return float(self.a[-1, -1])

    @cached_property
    def coefficients(self) -> tuple[Array, ...]:
        """Those of the stages, of each part."""
        return (self.a,) if self.a_explicit is None else (self.a, self.a_explicit)

    @cached_property
    def weights(self) -> tuple[Array, ...]:
        """Those of the solution, of each part."""
        return (self.b,) if self.b_explicit is None else (self.b, self.b_explicit)

    @cached_property
    def end(self) -> Array | None:
        """What comes to the last stage in the state after the step: h times these rates of g.

        None: nothing.
        """
        if self.a_explicit is None or self.b_explicit is None:
            return None
        more = self.b_explicit - self.a_explicit[-1]
        return more if more.any() else None

    @cached_property
    def reads(self) -> tuple[bool, ...]:
        """Whether the rate of g at each stage is read by a later one, by the end, or by both."""
        if self.a_explicit is None or self.b_explicit is None:
            return (False,) * len(self.c)
        read = self.a_explicit.any(axis=0) | (self.b_explicit != 0.0)
        if self.b_embedded is not None:
            read |= self.b_embedded != 0.0
        return tuple(read.tolist())

    @cached_property
    def embedded(self) -> Array | None:
        """The solution of one order less as a sum of stages, their weights [s], if there is one.

        The rate at the start drops out, since that solution stays bounded for the fastest modes.
        """
        if self.b_embedded is None:
            return None
        # The rates of the implicit stages are linear in their states: h f = a^-1 (U - u_n - ...).
        # With b_embedded = a^T x the sum h b_embedded.f becomes x.(U - u_n), a sum of stages.
        of_later = np.linalg.solve(self.a[1:, 1:].T, self.b_embedded[1:])
        return np.array([1.0 - of_later.sum(), *of_later])

    @cached_property
    def guess(self) -> Array:
        """First guesses [s, s] of the rates of stages, as sums of the rates of those before.

        The sums extrapolate polynomials in time of degree two, the order of the stages; of all sums
        that do so they have the smallest weights, since the rates of stiff equations have errors.

        Source
        ------
        Kennedy, Carpenter, NASA/TM-2016-219173, section 2.8, stage-value predictors.
        """
        result = np.zeros(self.a.shape)
        for i in range(1, len(self.c)):
            powers = np.arange(min(3, i))
            moments = self.c[:i] ** powers[:, None]
            result[i, :i] = np.linalg.lstsq(moments, self.c[i] ** powers)[0]
        return result

    @cached_property
    def additive(self) -> tuple[Array, Array, Array] | None:
        """The coefficients of h g in the stages, at the end and beside ``embedded``, if any."""
        if self.a_explicit is None:
            return None
        nothing = np.zeros(len(self.c))
        beside = nothing
        if self.embedded is not None and self.b_embedded is not None:
            beside = self.b_embedded - self.embedded[1:] @ self.a_explicit[1:]
        return self.a_explicit, nothing if self.end is None else self.end, beside


def _esdirk(
    order: int,
    gamma: float,
    rows: Sequence[Sequence[float]],
    b_embedded: Sequence[float],
    c: Sequence[float],
) -> Esdirk:
    """Make a method of its abscissae, and its rows and weights without their first entry.

    Rows have neither the diagonal.  Row sums are the abscissae, and weights have the sum 1.
    """
    s = len(c)
    a = np.zeros((s, s))
    for i in range(1, s):
        a[i, 1 : i + 1] = [*rows[i - 1], gamma]
        # from the row sums, so that rounding does not spoil consistency of the stages
        a[i, 0] = c[i] - a[i, 1:].sum()
    # likewise the sum of the weights is exactly 1
    rest = np.array(b_embedded, dtype=float)
    return Esdirk(a, np.array(c, dtype=float), np.array([1.0 - rest.sum(), *rest]), order)


def _ratios(text: str) -> list[float]:
    return [float(Fraction(ratio)) for ratio in text.split()]


_THIRD = _esdirk(
    3,
    0.225,
    [
        [],
        [9 * (1 + _ROOT) / 80],
        [(22 + 15 * _ROOT) / (80 * (1 + _ROOT)), -7 / (40 * (1 + _ROOT))],
        [
            (2398 + 1205 * _ROOT) / (2835 * (4 + 3 * _ROOT)),
            -2374 * (1 + 2 * _ROOT) / (2835 * (5 + 3 * _ROOT)),
            5827 / 7560,
        ],
    ],
    [
        (5547709 * _ROOT - 4800247) / 16519545,
        11095418 * (1 - _ROOT) / 16519545,
        30698249 / 44052120,
        49563 / 233080,
    ],
    [0.0, 0.45, 9 * (2 + _ROOT) / 40, 0.6, 1.0],
)

_FOURTH = _esdirk(
    4,
    0.25,
    [
        [],
        _ratios("-1356991263433/26208533697614"),
        _ratios("-1778551891173/14697912885533 7325038566068/12797657924939"),
        _ratios(
            "-24076725932807/39344244018142 9344023789330/6876721947151 "
            "11302510524611/18374767399840"
        ),
        _ratios(
            "657241292721/9909463049845 1290772910128/5804808736437 1103522341516/2197678446715 "
            "-3/28"
        ),
    ],
    _ratios(
        "-71925161075/3900939759889 2973346383745/8160025745289 3972464885073/7694851252693 "
        "-263368882881/4213126269514 3295468053953/15064441987965"
    ),
    [0.0, 0.5, (2 - _ROOT) / 4, *_ratios("2012122486997/3467029789466 1 1")],
)

_FIFTH = _esdirk(
    5,
    0.25,
    [
        [],
        _ratios("1748874742213/5795261096931"),
        _ratios("2426486750897/12677310711630 -783385356511/7619901499812"),
        _ratios(
            "1616209367427/5722977998639 -211896077633/5134769641545 464248917192/17550087120101"
        ),
        _ratios(
            "1825204367749/7149715425471 -1289376786583/6598860380111 "
            "55566826943/2961051076052 1548994872005/13709222415197"
        ),
        _ratios(
            "-5781183663275/18946039887294 -57847255876685/10564937217081 "
            "29339178902168/9787613280015 122011506936853/12523522131766 "
            "-60418758964762/9539790648093"
        ),
        _ratios(
            "-4152366519273/20368318839251 -143958253112335/33767350176582 "
            "16929685656751/6821330976083 37330861322165/4907624269821 "
            "-103974720808012/20856851060343 -93596557767/4675692258479"
        ),
    ],
    _ratios(
        "-34114578494/9511465441463 -10730340352595/5750059075211 16308974155447/11154981868028 "
        "16015983083570/4734398780449 -16745095336747/7220642436550 "
        "-3941055932791/7113931146175 9504350599766/12768012822991"
    ),
    [0.0, 0.5, (2 + _ROOT) / 4, 0.53, 0.8, 0.68, 1.0, 1.0],
)

_SIXTH = _esdirk(
    6,
    2 / 9,
    [
        [],
        _ratios("-52295652026801/1014133226193379"),
        _ratios("-162541608159785/642690962402252 186915148640310/408032288622937"),
        _ratios(
            "-211140841282847/266150973773621 884359688045285/894827558443789 "
            "845261567597837/1489150009616527"
        ),
        _ratios(
            "498042629717897/1553069719539220 -73718535152787/262520491717733 "
            "-147656452213061/931530156064788 -16605385309793/2106054502776008"
        ),
        _ratios(
            "233542892858682/880478953581929 -281992829959331/709729395317651 "
            "-52133614094227/895217507304839 -9321507955616/673810579175161 "
            "79481371174259/817241804646218"
        ),
        _ratios(
            "-1085539098090580/1176943702490991 370161554881539/461122320759884 "
            "804017943088158/886363045286999 -15204170533868/934878849212545 "
            "-248215443403879/815097869999138 339987959782520/552150039467091"
        ),
        _ratios(
            "0 0 281246836687281/672805784366875 250674029546725/464056298040646 "
            "88917245119922/798581755375683 127306093275639/658941305589808 "
            "-319515475352107/658842144391777"
        ),
    ],
    _ratios(
        "0 -818062434310719/743038324242217 1376520686137389/1064235527052079 "
        "-574817982095666/1374329821545869 -507643245828272/1001056758847831 "
        "2013538191006793/972919262949000 352681731710820/726444701718347 "
        "-12107714797721/746708658438760"
    ),
    _ratios(
        "0 4/9 376327483029687/1335600577485745 433625707911282/850513180247701 183/200 "
        "62409086037595/296036819031271 81796628710131/911762868125288 97/100 1"
    ),
)

# gamma = 0.4358665..., a root of g^3 - 3 g^2 + 3/2 g - 1/6: L-stable in three implicit stages
_GAMMA = 1767732205903 / 4055673282236

_THIRD_OF_FOUR = _esdirk(
    3,
    _GAMMA,
    [
        [],
        _ratios("-640167445237/6845629431997"),
        _ratios("-4482444167858/7529755066697 11266239266428/11593286722821"),
    ],
    _ratios(
        "-10771552573575/22201958757719 9247589265047/10645013368117 2193209047091/5459859503100"
    ),
    [0.0, 2 * _GAMMA, 0.6, 1.0],
)

TABLEAUX: Mapping[str, Esdirk] = MappingProxyType(
    {
        "esdirk3": _THIRD,
        "esdirk4": _FOURTH,
        "esdirk5": _FIFTH,
        "esdirk6": _SIXTH,
        "kencarp3": _THIRD_OF_FOUR,
    }
)
"""The methods by the names that ``Stepping`` knows."""
