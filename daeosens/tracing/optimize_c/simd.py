"""Straight-line C functions at several points at once: one number of a vector for each point.

The statements that CasADi writes for functions of scalars are compiled again with vectors of GCC
(from version 9 on) in the place of numbers.  Each lane does what the function does at one point, in
the same order, so the results are the same to the last digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from daeosens.tracing.derivatives import Generated

MOST = 5000
"""Up to so many operations a function is worth the time to compile it twice."""

CALLS = 8
"""A function of the C library, called lane by lane, comes with at least so many operations."""

STACK = 512
"""Up to so many vectors are on the stack; more are kept, one set for each thread."""

_PRELUDE = """\
#if __GNUC__ >= 9 && !defined(__clang__)
#if defined(__AVX512F__)
#define LANES 8
#elif defined(__AVX__)
#define LANES 4
#else
#define LANES 2
#endif
typedef double lanes __attribute__((vector_size(8 * LANES)));
typedef long long lane_bits __attribute__((vector_size(8 * LANES)));
#define all(x) ((x) - (lanes){0.})
#define truth(x) __builtin_convertvector(-(x), lanes)
#define if_else_zero(x, y) ((lanes)(((x) != 0.) & (lane_bits)(y)))
#define casadi_sq_lanes(x) ((x) * (x))
/* the first halves of two vectors by turns, or the second ones */
static inline lanes interleaved(lanes a, lanes b, int half) {
  lane_bits places;
  for (int l = 0; l < LANES; l++) places[l] = (l + half * LANES) / 2 + l % 2 * LANES;
  return __builtin_shuffle(a, b, places);
}
static inline void transpose(lanes *x) {
  for (int done = 1; done < LANES; done *= 2) {
    lanes y[LANES];
    for (int l = 0; l < LANES; l++) y[l] = interleaved(x[l / 2], x[(l + LANES) / 2], l % 2);
    for (int l = 0; l < LANES; l++) x[l] = y[l];
  }
}
/* out[i][l] = values[l * size + i] */
static void gather(lanes *out, const double *values, long size) {
  if (size < LANES)
    for (long i = 0; i < size; i++)
      for (int l = 0; l < LANES; l++) out[i][l] = values[l * size + i];
  else
    for (long i = 0; i < size; i += LANES) {
      lanes x[LANES];
      if (i > size - LANES) i = size - LANES; /* the last ones: some for the second time */
      for (int l = 0; l < LANES; l++)
        __builtin_memcpy(&x[l], values + l * size + i, sizeof(lanes));
      transpose(x);
      for (int l = 0; l < LANES; l++) out[i + l] = x[l];
    }
}
/* values[l * size + i] = in[i][l]; returns 0 in the lanes whose values are finite */
static lanes scatter(const lanes *in, double *values, long size) {
  lanes faults = {0.};
  for (long i = 0; i < size; i++) faults += in[i] - in[i];
  if (size < LANES)
    for (long i = 0; i < size; i++)
      for (int l = 0; l < LANES; l++) values[l * size + i] = in[i][l];
  else
    for (long i = 0; i < size; i += LANES) {
      lanes x[LANES];
      if (i > size - LANES) i = size - LANES;
      for (int l = 0; l < LANES; l++) x[l] = in[i + l];
      transpose(x);
      for (int l = 0; l < LANES; l++)
        __builtin_memcpy(values + l * size + i, &x[l], sizeof(lanes));
    }
  return faults;
}
/* ``strides`` of inputs are the numbers of entries of each; 0: all points share it */
static int at_points(void (*function)(double *const *, const lanes **, lanes **), int inputs,
                     int outputs, const long *strides, lanes *room, long count,
                     double *const *arrays, const long *given) {
  const lanes *arg[inputs];
  lanes *res[outputs], faults = {0.};
  int finite = 1;
  if (count < LANES) return 0;
  for (int j = 0; j < inputs; room += strides[j++]) {
    if (given[j] != strides[j]) return 0;
    arg[j] = room;
  }
  strides += inputs;
  for (int j = 0; j < outputs; room += strides[j++]) res[j] = room;
  for (long k = 0; k < count; k += LANES) {
    if (k > count - LANES) k = count - LANES;
    for (int j = 0; j < inputs; j++) gather((lanes *)arg[j], arrays[j] + k * given[j], given[j]);
    function(arrays, arg, res);
    for (int j = 0; j < outputs; j++)
      faults += scatter(res[j], arrays[inputs + j] + k * strides[j], strides[j]);
  }
  for (int l = 0; l < LANES; l++) finite = finite && faults[l] == 0.;
  return finite ? 1 : 2;
}
"""

_AT_MANY_POINTS = ("rhs", "rhs_u", "rhs_p", "rhs_p_apply", "rhs_p_transpose", "rhs_hessian")
"""Functions that are evaluated at many points, and do more than copy or call others."""

_SHARED = ("p", "dp", "v")
"""Inputs that are the same at all points."""

_LITERAL = r"\d+\.\d*(?:e[+-]\d+)?|casadi_inf|casadi_nan"
_OPERAND = rf"(?:a\d+|{_LITERAL})"
_STATEMENT = re.compile(
    r"  (?:if \(res\[\d+\]!=0\) )?(?P<left>a\d+|res\[\d+\]\[\d+\])="
    r"(?:(?P<plain>a\d+|\(-a\d+\))"
    r"|arg(?P<entry>\[(?P<input>\d+)\]\[\d+\])"
    rf"|(?P<constant>-?(?:{_LITERAL}))"
    rf"|\((?P<first>{_OPERAND})(?P<operator>[-+*/]|<=?|[=!]=|&&|\|\|)(?P<second>{_OPERAND})\)"
    r"|\(!(?P<negated>a\d+)\)"
    r"|\((?P<condition>a\d+)\?(?P<then>a\d+):0\)"
    r"|(?P<called>\w+)\((?P<x>a\d+)(?:,(?P<y>a\d+))?\));"
)
_DECLARATION = re.compile(r"  casadi_real( a\d+(?:, a\d+)*;)")


def with_lanes(code: str, functions: Iterable[Generated]) -> str:
    """Return C source with versions for many points of those functions that gain from them.

    The version of ``name`` is ``points_symbol(name)``; ``Native.points`` says what it does.
    """
    helpers: dict[str, str] = {}
    versions: list[str] = []
    for each in functions:
        if each.name not in _AT_MANY_POINTS or not each.function.is_a("SXFunction"):
            continue
        translated = _translated(_body(code, each.name), each.function.name_in())
        if translated is not None:
            lines, called = translated
            helpers |= called
            versions.append(_version(each, lines))
    if not versions:
        return code
    return "\n".join([code, _PRELUDE, *helpers.values(), *versions, "#endif"])


def points_symbol(name: str) -> str:
    """Return the symbol of the version for many points, where there is one."""
    return f"daeosens_{name}_points"


def _body(code: str, name: str) -> list[str]:
    """Return the lines of the function that CasADi wrote."""
    found = re.search(rf"/\* {name}:\(.*\nstatic int \w+\(.*\n((?:  .*\n)*?)  return 0;\n", code)
    return found[1].splitlines() if found else []


def _translated(body: list[str], inputs: list[str]) -> tuple[list[str], dict[str, str]] | None:
    """Return the statements for lanes and the functions they call; None if there is no gain.

    That is where much of the work is in functions of the C library, or a statement is unknown.
    """
    if not 0 < len(body) <= MOST:
        return None
    lines: list[str] = []
    helpers: dict[str, str] = {}
    calls = 0
    for line in body:
        declaration = _DECLARATION.fullmatch(line)
        if declaration:
            lines.append(f"  lanes{declaration[1]}")
            continue
        statement = _STATEMENT.fullmatch(line)
        if statement is None:
            return None
        lines.append(f"  {statement['left']} = {_expression(statement, inputs)};")
        called = statement["called"]
        if called and called != "casadi_sq":
            calls += 1
            helpers[called] = _lane_by_lane(called, 2 if statement["y"] else 1)
    return None if calls * CALLS > len(body) else (lines, helpers)


def _expression(statement: re.Match[str], inputs: list[str]) -> str:
    """Return the right-hand side of a statement for lanes."""
    part = statement.groupdict()
    match statement.lastgroup:
        case "entry":
            one = inputs[int(part["input"])] in _SHARED
            result = f"all(arrays{part['entry']})" if one else f"arg{part['entry']}"
        case "constant":
            result = f"all({part['constant']})"
        case "negated":
            result = f"truth({part['negated']} == 0.)"
        case "then":
            result = f"if_else_zero({part['condition']}, {part['then']})"
        case "second":
            first, second = (_operand(part[each]) for each in ("first", "second"))
            result = _operation(part["operator"], first, second)
        case "x" | "y":
            arguments = ", ".join(filter(None, (part["x"], part["y"])))
            result = f"{part['called']}_lanes({arguments})"
        case _:
            result = part["plain"]
    return result


def _operand(text: str) -> str:
    return text if text[0] == "a" else f"all({text})"


def _operation(operator: str, first: str, second: str) -> str:
    if operator in "+-*/":
        return f"{first} {operator} {second}"
    if operator in ("&&", "||"):
        return f"truth(({first} != 0.) {operator[0]} ({second} != 0.))"
    return f"truth({first} {operator} {second})"


def _lane_by_lane(called: str, inputs: int) -> str:
    arguments = ("x", "y")[:inputs]
    return (
        f"static __attribute__((noinline)) lanes {called}_lanes("
        f"{', '.join(f'lanes {each}' for each in arguments)}) {{\n"
        f"  for (int l = 0; l < LANES; l++) "
        f"x[l] = {called}({', '.join(f'{each}[l]' for each in arguments)});\n"
        "  return x;\n}"
    )


def _version(each: Generated, lines: list[str]) -> str:
    function, name = each.function, each.name
    outputs = [function.numel_out(k) for k in range(function.n_out())]
    inputs = [
        0 if shared in _SHARED else function.numel_in(k)
        for k, shared in enumerate(function.name_in())
    ]
    sizes = [*inputs, *outputs]
    storage = "static _Thread_local " if sum(sizes) > STACK else ""
    symbol, counts = points_symbol(name), f"{len(inputs)}, {len(outputs)}"
    return "\n".join(
        [
            f"static void {name}_lanes(",
            "    double *const *arrays, const lanes **arg, lanes **res) {",
            *lines,
            "}",
            f"int {symbol}(long count, double *const *arrays, const long *strides, void *data) {{",
            f"  static const long expected[] = {{{', '.join(map(str, sizes))}}};",
            f"  {storage}lanes room[{sum(sizes)}];",
            f"  return at_points({name}_lanes, {counts}, expected, room, count, arrays, strides);",
            "}",
        ]
    )
