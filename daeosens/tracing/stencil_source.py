"""C source of functions of a grid's points: loops over a rank's box, for compilers that vectorise.

Of each vector whose neighbours are read a few rows are kept unknown by unknown, with what lies
beyond both ends: the innermost loop knows neither edges nor unknowns side by side, and halo points
are never copied for all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeVar

from daeosens.tracing.library import casadi
from daeosens.tracing.stencil_derivatives import PointFunction, Read

Number = TypeVar("Number", int, float)


def stencil_source(functions: Sequence[PointFunction], dof: int, dimensions: int) -> str:
    """Return the C source: each function ``name`` becomes ``void daeosens_name(const Box *)``.

    The type Box is that of ``_petsc/stencil.h``; beside them are the loops of ``bicgstab.h``.
    """
    folder = resources.files("daeosens._petsc")
    headers = [folder.joinpath(name).read_text() for name in ("stencil.h", "bicgstab.h")]
    generator = casadi.CodeGenerator("points.c", {"with_header": False, "verbose": False})
    for each in functions:
        generator.add(each.function)
    # compilers vectorise loops only if all that they call is put in its place
    scalars = generator.dump().replace("static int casadi_f", f"{_INLINE} int casadi_f")
    hidden = [
        f"#define CASADI_SYMBOL_EXPORT {_INLINE}",
        "#pragma GCC visibility push(hidden)",
        scalars,
        "#pragma GCC visibility pop",
    ]
    sizes = [f"#define DOF {dof}", f"#define DIMENSIONS {dimensions}"]
    loops = [_function(each, dof, dimensions) for each in functions]
    return "\n".join([*sizes, *headers, *hidden, *loops])


def work_size(functions: Sequence[PointFunction], dof: int, points: tuple[int, ...]) -> int:
    """Return how many numbers the functions need as work space for a box of points.

    It is to begin on a cache line, and ends on one.
    """
    most = max(_kept_rows(each, dof, points) + each.n_sums * points[0] for each in functions)
    return _lines(most)


ADDENDS = (0, 1, 2, 4)
"""Of one call: none, those of a stage, or those of a step of two or four stages."""

LINE = 8
"""Numbers of a cache line, as in ``_petsc/stencil.h``."""

_INLINE = "static inline __attribute__((always_inline))"


def axes(along: Sequence[Number]) -> tuple[Number, Number, Number]:
    """Return numbers along x, y, z as those of the fastest, middle and slowest dimension.

    Those of dimensions that a grid does not have are 0.
    """
    none: Any = 0
    if len(along) == 3:
        return along[0], along[1], along[2]
    return (along[0], none, along[1] if len(along) == 2 else none) if along else (none,) * 3


def _lines(count: int) -> int:
    """Return how many numbers the cache lines of ``count`` have."""
    return -(-count // LINE) * LINE


def _kept_rows(each: PointFunction, dof: int, points: tuple[int, ...]) -> int:
    n, m, _ = axes(points)
    size = 0
    for k in range(each.vectors):
        x, middle, slow = axes(each.widths(k))
        if x or middle or slow:
            size += (2 * slow + 1) * dof * (max(m, 1) + 2 * middle) * (_lines(x) + _lines(n + x))
    return size


def _function(each: PointFunction, dof: int, dimensions: int) -> str:
    rows = _Rows(each, dof, dimensions)
    sums, values = each.n_sums, each.n_out
    most = max(_addends(each))
    parameters = [f"const double *restrict q{k}" for k in range(len(rows.pointers))]
    lines = [
        f"{_INLINE} void row_{each.name}(",
        "  const Box *restrict b, const double *restrict p, const double *restrict dp,",
        f"  const double *place, {', '.join(parameters)}{', ' if parameters else ''}",
        "  long at, double *sums, const int addends) {",
        "  const long n = b->n[0];",
        "  const double t = b->t, first = b->first[0], spacing = b->spacing[0], alpha = b->alpha;",
    ]
    if values:
        lines += [f"  double *out = b->out + {values} * at;"]
    for k in range(most):
        lines += [f"  const double *add{k} = addends > {k} ? b->add[{k}] + {values} * at : 0;"]
        lines += [f"  const double beta{k} = addends > {k} ? b->beta[{k}] : 0.0;"]
    reads = ", ".join(rows.value(read) for read in each.reads) or "0.0"
    others = "".join(f", place[{k}]" for k in range(1, dimensions))
    lines += [
        "  INDEPENDENT",
        "  for (long i = 0; i < n; i++) {",
        f"    const double x[] = {{first + i * spacing{others}}}, read[] = {{{reads}}};",
        f"    double value[{values + 1}], sum[{sums + 1}];",
        "    const double *arg[] = {&t, p, dp, x, read};",
        "    double *res[] = {value, sum};",
        f"    {each.name}(arg, res, 0, 0, 0);",
    ]
    for c in range(values):
        place = f"[{values} * i + {c}]"
        lines += [f"    double value{c} = alpha * value[{c}];"]
        for k in range(most):
            lines += [f"    if (addends > {k}) value{c} += beta{k} * add{k}{place};"]
    lines += [f"    out[{values} * i + {c}] = value{c};" for c in range(values)]
    lines += [f"    sums[{k} * n + i] = sum[{k}];" for k in range(sums)]
    lines += ["  }", "}", *_loops(each, rows, dof, dimensions)]
    return "\n".join(lines)


def _loops(each: PointFunction, rows: _Rows, dof: int, dimensions: int) -> list[str]:
    lines = [
        f"{_INLINE} void box_{each.name}(const Box *b, const int addends) {{",
        "  const long n = b->n[0], middles = b->n[1], slows = b->n[2];",
        "  double *work = b->work;",
    ]
    for k, (x, m, s) in rows.kept.items():
        count = 2 * s + 1
        read = f"read_slab(b, {k}, {x}, {m}"
        lines += [
            f"  const long length{k} = LENGTH(n, {x}), skip{k} = (middles + {2 * m}) * length{k};",
            f"  const long slab{k} = {dof} * skip{k};",
            f"  double *kept{k} = work;",
            f"  work += {count} * slab{k};",
        ]
    lines += [
        "  for (long i = b->from; i < b->to; i++) {",
        "    const long s = (b->begin + i) % slows;",
    ]
    for k, (x, m, s) in rows.kept.items():
        read = f"read_slab(b, {k}, {x}, {m}"
        lines += [
            "    if (i == 0 || s == 0)",
            f"      for (long k = {-s}; k < {s}; k++)",
            f"        {read}, s + k, kept{k} + (s + k + {s}) % {2 * s + 1} * slab{k});",
            f"    {read}, s + {s}, kept{k} + (s + {2 * s}) % {2 * s + 1} * slab{k});",
        ]
    lines += [
        "    for (long m = 0; m < middles; m++) {",
        "      const long at = (s * middles + m) * n;",
        f"      const double place[] = {{0.0, {_places(dimensions)}}};",
        f"      row_{each.name}(b, b->p, b->dp, place,",
        *(f"        {pointer}," for pointer in rows.pointers),
        "        at, work, addends);",
        *(f"      b->sums[{k}] += sum_of(work + {k} * n, n);" for k in range(each.n_sums)),
        "    }",
        "  }",
        "}",
        f"void daeosens_{each.name}(const Box *b) {{",
    ]
    *others, last = sorted(_addends(each))
    lines += [f"  if (b->addends == {k}) box_{each.name}(b, {k});\n  else" for k in others]
    return [*lines, f"  box_{each.name}(b, {last});", "}"]


def _addends(each: PointFunction) -> Sequence[int]:
    """Return how many vectors the values may be added to: those of a stage, and of a step."""
    return ADDENDS if each.added else (0,)


def _places(dimensions: int) -> str:
    middle, slow = (f"b->first[{k}] + {of} * b->spacing[{k}]" for k, of in ((1, "m"), (2, "s")))
    return f"{slow}, 0.0" if dimensions < 3 else f"{middle}, {slow}"


class _Rows:
    """Where a function finds what it reads: pointers to rows, and places in them.

    Attributes
    ----------
    kept : mapping of vector to (int, int, int)
        How far those vectors are read whose neighbours are, along each dimension.
    pointers : list of str
        Expressions of the rows' beginnings.
    """

    def __init__(self, each: PointFunction, dof: int, dimensions: int) -> None:
        widths = {k: axes(each.widths(k)) for k in range(each.vectors)}
        self.kept = {k: width for k, width in widths.items() if any(width)}
        self.pointers: list[str] = []
        self._dof = dof
        self._numbers: dict[str, int] = {}
        self._places: dict[Read, str] = {}
        for read in each.reads:
            x, middle, slow = axes(read.offset)
            k, c = read.vector, read.component
            if k in self.kept:
                wx, wm, ws = self.kept[k]
                slab = f"(s + {slow + ws}) % {2 * ws + 1} * slab{k}"
                line = f"(m + {middle + wm}) * length{k} + {_lines(wx)}"
                row = f"kept{k} + {slab} + {c} * skip{k} + {line}"
                self._places[read] = f"q{self._number(row)}[i + {x}]"
            else:
                row = f"b->in[{k}] + {dof} * at"
                self._places[read] = f"q{self._number(row)}[{dof} * i + {c}]"

    def value(self, read: Read) -> str:
        """Return the expression of a number in a row."""
        return self._places[read]

    def _number(self, row: str) -> int:
        if row not in self._numbers:
            self._numbers[row] = len(self.pointers)
            self.pointers.append(row)
        return self._numbers[row]
