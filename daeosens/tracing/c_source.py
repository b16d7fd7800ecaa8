"""C source of generated functions, with the signatures that callbacks in C have."""

from __future__ import annotations

import re
from collections.abc import Sequence

from daeosens.tracing.casadi import casadi
from daeosens.tracing.derivatives import CLOSE, DATA, HELD, ITERATIONS, Generated, Held
from daeosens.tracing.loop_rolling import STACK, rolled


def source(functions: Sequence[Generated]) -> str:
    """Return the C source of all functions.

    A function ``name`` with the inputs t, u, p, ... becomes ``void name(double t, const double *u,
    const double *p, ..., double *out, ...)``; it is a ``double`` where its last output is called
    "returned".  Numbers that come along are behind ``user_data``, the last argument.
    """
    generator = casadi.CodeGenerator("model.c", {"with_header": False, "verbose": False})
    for function in functions:
        generator.add(function.function)
    # Newton iterations, of a DAEO's optimisers, are found once before derivatives are taken of them
    iterations = {part.held.name: part.held for part in functions if part.held is not None}
    for held in iterations.values():
        for function in (held.start, held.step, held.values):
            generator.add(function)
    # what nobody else calls the compiler puts in its place
    code = f"#define CASADI_SYMBOL_EXPORT static\n{generator.dump()}"
    # the wrappers never pass NULL for an input; without the question compiling takes half the time
    code = re.sub(r"arg\[(\d+)\]\? arg\[\1\]\[(\d+)\] : 0", r"arg[\1][\2]", code)
    code = re.sub(r"arg\[(\d+)\] \? arg\[\1\] : casadi_zeros", r"arg[\1]", code)
    code = rolled(with_fast_products(code))
    finders = [_finder(held) for held in iterations.values()]
    return "\n".join([code, *finders, *(_wrapper(function) for function in functions)])


def entry(name: str) -> str:
    """Return the symbol of a function in the library."""
    return f"daeosens_{name}"


def _wrapper(generated: Generated) -> str:
    function = generated.function
    inputs, outputs = function.name_in(), function.name_out()
    returned = outputs[-1:] == ["returned"]
    filled = outputs[:-1] if returned else outputs
    arguments = [
        "double t",
        *(
            f"const double *{name}"
            for name in inputs[1:]
            if name not in (_row(generated), DATA, HELD)
        ),
    ]
    arguments += [f"double *{name}" for name in filled]
    arguments += [f"const double *{DATA}"] if DATA in inputs else []
    sizes = [function.sz_arg(), function.sz_res(), function.sz_iw(), function.sz_w()]
    # large work space is not for the stack, of which threads have little
    storage = "static _Thread_local " if sum(sizes) > STACK else ""
    rows, columns = (generated.shape * 2)[:2] if generated.by_rows else (0, 0)
    lines = [
        f"{'double' if returned else 'void'} {entry(generated.name)}({', '.join(arguments)}) {{",
        f"  {storage}double w_[{sizes[3] + 1}];",
        f"  {storage}casadi_int iw_[{sizes[2] + 1}];",
        f"  const double *arg_[{sizes[0] + 1}];",
        f"  double *res_[{sizes[1] + 1}];",
        "  double returned_ = 0.0;",
    ]
    if generated.held is not None:
        inputs_of_constants = ", ".join(("t", "u", "p", *([DATA] if DATA in inputs else [])))
        lines += [
            f"  double {HELD}[{generated.held.symbols.numel()}];",
            f"  {_name_of_finder(generated.held)}({inputs_of_constants}, {HELD});",
        ]
    call = [f"arg_[{k}] = {'&t' if name == 't' else name};" for k, name in enumerate(inputs)]
    call += [f"res_[{k}] = {name};" for k, name in enumerate(filled)]
    call += [f"res_[{len(filled)}] = &returned_;"] if returned else []
    call += [f"{generated.name}(arg_, res_, iw_, w_, 0);"]
    if generated.by_rows:
        lines += [
            f"  static _Thread_local double w[{rows}];",
            f"  for (casadi_int row = 0; row < {rows}; ++row, out += {columns}) {{",
            "    w[row] = 1.0;",
            *(f"    {line}" for line in call),
            "    w[row] = 0.0;",
            "  }",
        ]
    else:
        lines += [f"  {line}" for line in call]
    lines += ["  return returned_;"] if returned else []
    return "\n".join([*lines, "}"])


def _name_of_finder(held: Held) -> str:
    return f"find_{held.name}"


def _finder(held: Held) -> str:
    """Return a C function that fills the constants: steps of an iteration, and what follows."""
    functions = held.start, held.step, held.values
    arg, res, iw, w = (
        max(getattr(function, f"sz_{kind}")() for function in functions)
        for kind in ("arg", "res", "iw", "w")
    )
    names = ["t", "u", "p", *([DATA] if held.start.n_in() > 3 else [])]
    arguments = ", ".join(f"const double *{name}" for name in names[1:])
    n, size = len(names), held.start.numel_out(0)
    return "\n".join(
        [
            f"static void {_name_of_finder(held)}(double t, {arguments}, double *{HELD}) {{",
            f"  double w_[{w + 1}], point[{size + 1}], next[{size + 1}], change = 0.0;",
            f"  casadi_int iw_[{iw + 1}];",
            f"  const double *arg_[{arg + 1}];",
            f"  double *res_[{res + 1}];",
            *(f"  arg_[{k}] = {'&t' if name == 't' else name};" for k, name in enumerate(names)),
            "  res_[0] = point;",
            f"  {held.start.name()}(arg_, res_, iw_, w_, 0);",
            f"  for (int k = 0; k < {ITERATIONS}; ++k) {{",
            f"    arg_[{n}] = point;",
            "    res_[0] = next;",
            "    res_[1] = &change;",
            f"    {held.step.name()}(arg_, res_, iw_, w_, 0);",
            f"    for (int i = 0; i < {size}; ++i) point[i] = next[i];",
            f"    if (k && !(change > {CLOSE:g})) break;",
            "  }",
            f"  arg_[{n}] = point;",
            f"  res_[0] = {HELD};",
            f"  {held.values.name()}(arg_, res_, iw_, w_, 0);",
            "}",
        ]
    )


def _row(generated: Generated) -> str:
    return "w" if generated.by_rows else ""


_ORIGINAL = "void casadi_mtimes_dense(const"

_PRODUCTS = """\
/* z[j] += a_j . v for the columns a_j [length]: four of them at a time, for the sake of the sums */
static void add_dots(const double *restrict a, long length, long count, const double *restrict v,
                     double *restrict z) {
  for (; count >= 4; count -= 4, a += 4 * length, z += 4) {
    const double *b = a + length, *c = b + length, *d = c + length;
    double p = 0.0, q = 0.0, r = 0.0, s = 0.0;
    #pragma omp simd reduction(+ : p, q, r, s)
    for (long k = 0; k < length; ++k) {
      p += a[k] * v[k];
      q += b[k] * v[k];
      r += c[k] * v[k];
      s += d[k] * v[k];
    }
    z[0] += p;
    z[1] += q;
    z[2] += r;
    z[3] += s;
  }
  for (; count; --count, a += length, ++z) {
    double p = 0.0;
    #pragma omp simd reduction(+ : p)
    for (long k = 0; k < length; ++k) p += a[k] * v[k];
    z[0] += p;
  }
}
/* z += sum of a_k v[k] for the columns a_k [length]: four of them at a time */
static void add_columns(const double *restrict a, long length, long count, const double *restrict v,
                        double *restrict z) {
  for (; count >= 4; count -= 4, a += 4 * length, v += 4) {
    const double *b = a + length, *c = b + length, *d = c + length;
    for (long j = 0; j < length; ++j)
      z[j] += (a[j] * v[0] + b[j] * v[1]) + (c[j] * v[2] + d[j] * v[3]);
  }
  for (; count; --count, a += length, ++v)
    for (long j = 0; j < length; ++j) z[j] += a[j] * v[0];
}
/* z += x y, or x^T y */
void casadi_mtimes_dense(const double *x, long long rows, long long columns, const double *y,
                         long long count, double *z, long long transposed) {
  if (rows == 1 && !transposed) {
    add_dots(y, columns, count, x, z);
    return;
  }
  for (; count; --count) {
    if (transposed) add_dots(x, rows, columns, y, z);
    else add_columns(x, rows, columns, y, z);
    y += transposed ? rows : columns;
    z += transposed ? columns : rows;
  }
}
"""


def with_fast_products(code: str) -> str:
    """Return CasADi's C source with products of dense matrices that use vector instructions.

    CasADi adds the terms of each sum one after the other, in memory; here the order is free.

    Examples
    --------
    >>> "add_dots" in with_fast_products("void casadi_mtimes_dense(const double* x) {}")
    True
    """
    # CasADi's function stays under another name, since its text is not ours to cut out
    return code.replace(_ORIGINAL, f"{_PRODUCTS}static void slow_products(const")
