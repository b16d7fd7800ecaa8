"""C source of a function at one row of points: where it finds what it reads, and its loop.

Of each vector whose neighbours are read a few rows are kept unknown by unknown, with what lies
beyond both ends: the innermost loop knows neither edges nor unknowns side by side, and halo points
are never copied for all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from daeosens.tracing.stencil.derivatives import ALONG, FIELDS, PointFunction, Read

Number = TypeVar("Number", int, float)

ADDENDS = (0, 1, 4)
"""Of one call: none, those of a stage, or those of a step; of two stages some have no weight."""

FEW = 64
"""Up to so many parameters are copied before the points of a row."""

FIELD_MEMORY = {FIELDS: "p", ALONG: "dp"}
"""After which numbers the values of fields are, and of a direction in them."""

LINE = 8
"""Numbers of a cache line, as in ``_kernels/grids/stencil.h``."""

INLINE = "static inline __attribute__((always_inline))"


def axes(along: Sequence[Number]) -> tuple[Number, Number, Number]:
    """Return numbers along x, y, z as those of the fastest, middle and slowest dimension.

    Those of dimensions that a grid does not have are 0.
    """
    none: Any = 0
    if len(along) == 3:
        return along[0], along[1], along[2]
    return (along[0], none, along[1] if len(along) == 2 else none) if along else (none,) * 3


def without_tiny(declaration: str, call: str) -> list[str]:
    """Return the source of a function that calls another one, for which tiny numbers are zero."""
    return [
        f"{declaration} {{",
        "  const unsigned mode = TINY_MODE();",
        "  SET_TINY_MODE(mode | TINY_IS_ZERO);",
        f"  {call};",
        "  SET_TINY_MODE(mode);",
        "}",
    ]


def line_numbers(count: int) -> int:
    """Return how many numbers the cache lines of ``count`` have."""
    return -(-count // LINE) * LINE


def addends(function: PointFunction) -> Sequence[int]:
    """Return how many vectors the values may be added to: those of a stage, and of a step."""
    return ADDENDS if function.added else (0,)


class Rows:
    """Where a function finds what it reads: pointers to rows, and places in them.

    Parameters
    ----------
    point_function : PointFunction
    dof : int
        Unknowns of a point.
    dimensions : int
        Of the grid.

    Attributes
    ----------
    kept : dict of int to (int, int, int)
        How far those vectors are read whose neighbours are, along each dimension.
    """

    def __init__(self, function: PointFunction, dof: int, dimensions: int) -> None:
        widths = {k: axes(function.widths(k)) for k in range(function.vectors)}
        self.kept = {k: width for k, width in widths.items() if any(width)}
        self.point_function, self.dof, self.dimensions = function, dof, dimensions
        self._keys: dict[tuple[int, ...], int] = {}
        self._places: dict[Read, str] = {}
        for read in function.reads:
            k, c = read.vector, read.component
            x, middle, slow = axes(read.offset)
            # Vectors whose neighbours are read have rows of their own, with what lies beyond both
            # ends; others are read where they are, the unknowns of a point side by side.
            # Fields have points around the box already, and their values side by side.
            if k in self.kept or k in FIELD_MEMORY:
                self._places[read] = f"q{self._number(k, c, middle, slow)}[i + {x}]"
            else:
                self._places[read] = f"q{self._number(k)}[{dof} * i + {c}]"

    def _number(self, *key: int) -> int:
        return self._keys.setdefault(key, len(self._keys))

    @property
    def _read_directly(self) -> list[int]:
        """Numbers of the pointers to rows that are not kept."""
        return [number for key, number in self._keys.items() if len(key) == 1]

    def size(self, vectors: Iterable[int], points: tuple[int, ...]) -> int:
        """Return how many numbers a call needs for rows that it keeps, and to sum up."""
        n, m, _ = axes(points)
        size = self.point_function.n_sums * n
        for k in vectors:
            x, middle, slow = self.kept[k]
            # the first point is at the start of a cache line, and the halo points before it are on
            # lines of their own
            row = line_numbers(x) + line_numbers(n + x)
            # so many slabs are in memory at a time as a point reads along the slowest dimension
            size += (2 * slow + 1) * self.dof * (max(m, 1) + 2 * middle) * row
        return line_numbers(size)

    def function(self) -> list[str]:
        """Return the function ``row_NAME``, which fills one row and what is to be summed up.

        Of numbers to be added, and of values, those of the next point are a step away, those of the
        next unknown a skip.
        """
        point_function = self.point_function
        dof, values, sums, most = (
            self.dof,
            point_function.n_out,
            point_function.n_sums,
            max(addends(point_function)),
        )
        rows = "".join(f"const double *restrict q{k}, " for k in self._keys.values())
        reads = ", ".join(self._places[read] for read in point_function.reads) or "0.0"
        others = "".join(f", place[{k}]" for k in range(1, self.dimensions))
        lines = [
            f"{INLINE} void row_{point_function.name}(",
            f"  const Box *restrict b, const double *place, {rows}",
            "  const double *const *add, const int add_step, const long add_skip,",
            "  double *out, const int step, const long skip, double *restrict also, double *sums,",
            "  const int addends, const int large, const int twice) {",
            "  const long n = b->n[0];",
            *(line for name in ("p", "dp") for line in self._numbers(name)),
            "  const double t = b->t, first = b->first[0], spacing = b->spacing[0];",
            "  const double alpha = b->alpha;",
        ]
        for k in range(most):
            lines += [f"  const double *add{k} = addends > {k} ? add[{k}] : 0;"]
            lines += [f"  const double beta{k} = addends > {k} ? b->beta[{k}] : 0.0;"]
        lines += [
            "  long begin = 0;",
            "  do {",
            "  const long end = large && begin + SEGMENT < n ? begin + SEGMENT : n;",
            *(
                f"  if (large) fetch(q{k} + {dof} * (n + begin), {dof} * (end - begin));"
                for k in self._read_directly
            ),
            # no iteration reads what another writes: the compiler may use SIMD without checks at
            # run time
            "  INDEPENDENT",
            "  for (long i = begin; i < end; i++) {",
            f"    const double x[] = {{first + i * spacing{others}}}, read[] = {{{reads}}};",
            f"    double value[{values + 1}], sum[{sums + 1}];",
            "    const double *arg[] = {&t, p, dp, x, read};",
            "    double *res[] = {value, sum};",
            f"    {point_function.name}(arg, res, 0, 0, 0);",
        ]
        for c in range(values):
            lines += [f"    double value{c} = alpha * value[{c}];"]
            for k in range(most):
                more = f"value{c} += beta{k} * add{k}[add_step * i + {c} * add_skip]"
                lines += [f"    if (addends > {k}) {more};"]
        lines += [f"    out[step * i + {c} * skip] = value{c};" for c in range(values)]
        lines += [f"    if (twice) also[{values} * i + {c}] = value{c};" for c in range(values)]
        lines += [f"    sums[{k} * n + i] = sum[{k}];" for k in range(sums)]
        return [*lines, "  }", "  begin = end;", "  } while (large && begin < n);", "}"]

    def _numbers(self, name: str) -> list[str]:
        """Return the declaration of the parameters, or of a direction in them.

        A few are copied: compilers vectorise loops that read local numbers, and not those that ask
        at every point whether there is an address.
        """
        count = self.point_function.function.numel_in(name)
        if not 0 < count <= FEW:
            return [f"  const double *restrict {name} = b->{name};"]
        copied = f"{name}[k] = b->{name} ? b->{name}[k] : 0.0"
        return [f"  double {name}[{count}];", f"  for (int k = 0; k < {count}; k++) {copied};"]

    def declarations(self, vectors: Iterable[int]) -> list[str]:
        """Return how the rows of some vectors share the memory that begins at ``work``."""
        lines: list[str] = []
        for k in vectors:
            x, m, s = self.kept[k]
            lines += [
                f"  const long length{k} = LENGTH(n, {x});",
                f"  const long skip{k} = (middles + {2 * m}) * length{k};",
                f"  const long slab{k} = {self.dof} * skip{k};",
                f"  double *kept{k} = work;",
                f"  work += {2 * s + 1} * slab{k};",
            ]
        return lines

    def reading(self, vectors: Iterable[int]) -> list[str]:
        """Return how the rows of some vectors are read for the place i of a call, slab s."""
        lines: list[str] = []
        for k in vectors:
            x, m, s = self.kept[k]
            read = f"read_slab(b, {k}, {x}, {m}"
            lines += [
                "    if (i == 0 || s == 0)",
                f"      for (long k = {-s}; k < {s}; k++)",
                f"        {read}, s + k, kept{k} + (s + k + {s}) % {2 * s + 1} * slab{k});",
                f"    {read}, s + {s}, kept{k} + (s + {2 * s}) % {2 * s + 1} * slab{k});",
            ]
        return lines

    def call(
        self, add: str, out: str, chained: int | None = None, also: str = "NULL", twice: str = "0"
    ) -> list[str]:
        """Return the call for row m of slab s, which begins at point ``at``, and the sums over it.

        Parameters
        ----------
        add, out : str
            Arguments: what is added, and what is filled; each with step and skip.
        chained : int, optional
            The vector whose slabs are in a ring.
        also, twice : str
            Where what is filled is written once more, the unknowns of a point side by side, if
            the latter is not 0.
        """
        point_function = self.point_function
        large = "LARGE" if chained is not None and self._read_directly else "0"
        middle, slow = (f"b->first[{k}] + {of} * b->spacing[{k}]" for k, of in ((1, "m"), (2, "s")))
        places = f"{slow}, 0.0" if self.dimensions < 3 else f"{middle}, {slow}"
        return [
            f"      const double place[] = {{0.0, {places}}};",
            f"      row_{point_function.name}(b, place,",
            *(f"        {self._pointer(key, chained)}," for key in self._keys),
            f"        {add}, {out}, {also}, work, addends, {large}, {twice});",
            *(
                f"      b->sums[{k}] += sum_of(work + {k} * n, n);"
                for k in range(point_function.n_sums)
            ),
        ]

    def _pointer(self, key: tuple[int, ...], chained: int | None) -> str:
        if len(key) == 1:
            return f"b->in[{key[0]}] + {self.dof} * at"
        k, c, middle, slow = key
        if k in FIELD_MEMORY:
            return self._field_pointer(FIELD_MEMORY[k], c, middle, slow)
        x, wm, ws = self.kept[k]
        if k == chained:
            return f"near[{slow + ws}] + {c} * chain->skip + (m + {middle}) * chain->length"
        # slabs are in a ring, by their number modulo 2 ws + 1
        slab = f"(s + {slow + ws}) % {2 * ws + 1} * slab{k}"
        line = f"(m + {middle + wm}) * length{k} + {line_numbers(x)}"
        return f"kept{k} + {slab} + {c} * skip{k} + {line}"

    def _field_pointer(self, memory: str, field: int, middle: int, slow: int) -> str:
        """Return where a row of a field begins, which has points around the box on all sides."""
        x, m, s = axes((self.point_function.around,) * self.dimensions)
        numbers = self.point_function.function.numel_in(memory)
        length = f"(n + {2 * x})"
        plane = f"(slows + {2 * s}) * (middles + {2 * m}) * {length}"
        row = f"(s + {slow + s}) * (middles + {2 * m}) + m + {middle + m}"
        return f"b->{memory} + {numbers} + {field} * {plane} + ({row}) * {length} + {x}"
