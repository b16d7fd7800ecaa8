"""Straight-line C functions with loops in the place of what is done again and again.

CasADi writes functions of scalars statement by statement.  Those of equations on arrays do the same
for one entry after the other: that becomes a loop.  Each of its rounds does what the statements
did, so the results are the same to the last digit; what takes compilers half a minute as statements
takes them no time as loops, which they also vectorise.

What many entries share is computed before the loops, and what depends on many, as sums do, after
them.  Neighbours that share a few results compute them twice, if that takes hardly longer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

LONG = 256
"""Functions of so many statements are looked at: shorter ones compile in no time."""

LEAST = 8
"""So many rounds make a loop, and so many uses of a result something that is shared."""

MOST = 100
"""So many statements may stand in a loop."""

AGAIN, CALL = 1.3, 20
"""Loops may take so many times as long as statements, and a call as long as so many of these."""

STACK = 4096
"""Up to so many numbers are on the stack; more are kept, one set for each thread."""

_FUNCTION = re.compile(
    r"(static int casadi_f\d+\(.*\) \{\n)(?:  casadi_real(?: a\d+,?)+;\n)+"
    r"((?:  .*;\n)+)(  return 0;\n)"
)
_STATEMENT = re.compile(r"  (?:(a\d+)|if \(res\[(\d+)\]!=0\) res\[\d+\]\[(\d+)\])=(.*);")
_ENTRY = re.compile(r"(arg\[\d+\])\[(\d+)\]")
_CONSTANT = re.compile(r"-?(?:\d+\.\d*(?:e[+-]\d+)?|casadi_inf|casadi_nan)")
_VARIABLE = re.compile(r"\ba\d+\b")
_CALL = re.compile(r"(?!casadi_sq|fabs|fmin|fmax)[a-z]\w*\(")


@dataclass(frozen=True)
class _Entry:
    """An entry of an array."""

    array: str
    number: int


Operand = _Entry | str | int
"""An entry, a constant, or the number of the statement whose result it is."""


@dataclass(frozen=True, eq=False)
class _Body:
    """The statements of a function, each of which fills a variable of its own.

    Attributes
    ----------
    values : list of (str, list of Operand)
        Right-hand sides with ``%s`` for the operands.
    outputs : list of (_Entry, Operand)
        What is filled with what.
    """

    values: list[tuple[str, list[Operand]]] = field(default_factory=list[tuple[str, list[Operand]]])
    outputs: list[tuple[_Entry, Operand]] = field(default_factory=list[tuple[_Entry, Operand]])

    def used(self, k: int) -> list[int]:
        """Return the numbers of the statements that one needs at once."""
        return [value for value in self.values[k][1] if isinstance(value, int)]

    def needed(self, first: Iterable[int], known: frozenset[int] | set[int]) -> list[int]:
        """Return the numbers of all statements that some need, beside those that are known."""
        statements: set[int] = set()
        stack = [k for k in first if k not in known]
        while stack:
            k = stack.pop()
            if k not in statements:
                statements.add(k)
                stack += [operand for operand in self.used(k) if operand not in known]
        return sorted(statements)


def rolled(code: str) -> str:
    r"""Return C source in which long functions of scalars have loops.

    Examples
    --------
    >>> round_text = "  a0=arg[0][{0}];\n  a0=sin(a0);\n  if (res[0]!=0) res[0][{0}]=a0;\n"
    >>> statements = "".join(round_text.format(k) for k in range(100))
    >>> head = "static int casadi_f0(const double** arg, double** res) {\n  casadi_real a0;\n"
    >>> print(rolled(f"{head}{statements}  return 0;\n}}"))
    static int casadi_f0(const double** arg, double** res) {
      #pragma GCC ivdep
      for (long k = 0; k < 100; k++) {
        const double v0 = sin(arg[0][0 + 1 * k]);
        if (res[0]) res[0][0 + 1 * k] = v0;
      }
      return 0;
    }
    """
    return _FUNCTION.sub(_with_loops, code)


def _with_loops(function: re.Match[str]) -> str:
    head, statements, end = function.groups()
    lines = statements.splitlines()
    body = _read(lines) if len(lines) >= LONG else None
    if body is None:
        return function[0]
    written = _written(body)
    return "".join([head, *(f"  {line}\n" for line in written), end]) if written else function[0]


def _read(lines: Sequence[str]) -> _Body | None:
    """Return what the statements say, or None where one is unknown."""
    body = _Body()
    now: dict[str, Operand] = {}  # what variables hold
    for line in lines:
        statement = _STATEMENT.fullmatch(line)
        if statement is None:
            return None
        variable, output, number, right = statement.groups()
        operands = [now[name] for name in _VARIABLE.findall(right)]
        entry = _ENTRY.fullmatch(right)
        if output is not None:
            if not _VARIABLE.fullmatch(right):
                return None
            body.outputs.append((_Entry(f"res[{output}]", int(number)), operands[0]))
        elif entry:
            now[variable] = _Entry(entry[1], int(entry[2]))
        elif _CONSTANT.fullmatch(right):
            now[variable] = f"({right})" if right[0] == "-" else right
        else:
            # CasADi uses variables again: each value gets a number of its own (static single
            # assignment)
            now[variable] = len(body.values)
            body.values.append((_VARIABLE.sub("%s", right), operands))
    return body


def _written(body: _Body) -> list[str]:
    """Return the statements with loops, or nothing where there are none."""
    shared = _shared(body)
    late = _late(body, shared)
    outputs = [output for output in body.outputs if output[1] not in late]
    after = [output for output in body.outputs if output[1] in late]
    kept = {k: number for number, k in enumerate(_kept(body, late, shared))}
    outputs += [(_Entry("kept", number), k) for k, number in kept.items()]
    kinds: dict[str, list[_Part]] = defaultdict(list)
    for part in _parts(body, outputs, shared):
        kinds["\n".join(part.lines)].append(part)
    if all(len(alike) < LEAST for alike in kinds.values()):
        return []
    names = {k: f"s{k}" for k in (*shared, *late)} | {k: f"kept[{kept[k]}]" for k in kept}
    lines = [_statement(body, k, names) for k in sorted(shared)]
    storage = "static _Thread_local " if len(kept) > STACK else ""
    lines += [f"{storage}double kept[{len(kept)}];"] if kept else []
    lines += [line for text, alike in kinds.items() for line in _loops(text, alike)]
    lines += [_statement(body, k, names) for k in sorted(late)]
    return lines + [
        f"if ({entry.array}) {entry.array}[{entry.number}] = {_named(value, names)};"
        for entry, value in after
    ]


def _shared(body: _Body) -> set[int]:
    """Return the statements that many others need, and those that these need."""
    uses = np.zeros(len(body.values), dtype=int)
    for k in range(len(body.values)):
        for operand in body.used(k):
            uses[operand] += 1
    many = np.flatnonzero(uses >= LEAST).tolist()
    return set(body.needed(many, frozenset()))


def _late(body: _Body, shared: set[int]) -> set[int]:
    """Return the statements that need too many others for a loop."""
    counts: list[int] = []
    for k in range(len(body.values)):
        before = sum(counts[operand] for operand in set(body.used(k)))
        counts.append(0 if k in shared else min(1 + before, MOST + 1))
    # sums over all entries, say: they are written after the loops
    return {k for k, count in enumerate(counts) if count > MOST}


def _kept(body: _Body, late: set[int], shared: set[int]) -> list[int]:
    """Return the statements in loops that late ones need, in the order in which they do."""
    operands = (operand for k in sorted(late) for operand in body.used(k))
    return [k for k in dict.fromkeys(operands) if k not in late and k not in shared]


def _statement(body: _Body, k: int, names: dict[int, str]) -> str:
    right, operands = body.values[k]
    return f"const double s{k} = {right % tuple(_named(operand, names) for operand in operands)};"


def _named(operand: Operand, names: dict[int, str]) -> str:
    if isinstance(operand, _Entry):
        return f"{operand.array}[{operand.number}]"
    return operand if isinstance(operand, str) else names[operand]


@dataclass
class _Part:
    """Statements of one round of a loop.

    Attributes
    ----------
    lines : list of str
        With ``{k}`` for the number of the k-th entry.
    entries : list of int
        The numbers of entries, of inputs and outputs, in the order of their use.
    """

    lines: list[str] = field(default_factory=list[str])
    entries: list[int] = field(default_factory=list[int])

    def entry(self, read: _Entry) -> str:
        """Return what stands for an entry."""
        self.entries.append(read.number)
        return f"{read.array}[{{{len(self.entries) - 1}}}]"


def _parts(body: _Body, outputs: Sequence[tuple[_Entry, Operand]], shared: set[int]) -> list[_Part]:
    """Return what can be done by itself: outputs that share results, if these are few."""
    # statements with the same owner belong to one part
    owner = list(range(len(body.values)))

    def root(k: int) -> int:
        while owner[k] != k:
            owner[k] = owner[owner[k]]
            k = owner[k]
        return k

    cones = [body.needed([value], shared) if isinstance(value, int) else [] for _, value in outputs]
    for cone in cones:
        for k in cone[:-1]:
            # Union-find: outputs whose statements meet belong to one round.
            owner[root(k)] = root(cone[-1])
    groups: dict[int, list[int]] = defaultdict(list)
    for number, cone in enumerate(cones):
        groups[root(cone[-1]) if cone else -1 - number].append(number)
    weights = [CALL if _CALL.match(right) else 1 for right, _ in body.values]
    parts: list[_Part] = []
    for group in groups.values():
        together = {k for number in group for k in cones[number]}
        apart = sum(weights[k] for number in group for k in cones[number])
        # one round with all of them would be too long: each output computes what it needs itself
        split = len(together) > MOST and apart <= AGAIN * sum(weights[k] for k in together)
        several = [[number] for number in group] if split else [group]
        parts += [_part(body, [outputs[k] for k in some], shared) for some in several]
    return parts


def _part(body: _Body, outputs: Sequence[tuple[_Entry, Operand]], shared: set[int]) -> _Part:
    """Write down some outputs and what they need."""
    part, names = _Part(), {k: f"s{k}" for k in shared}

    def operand(value: Operand) -> str:
        return part.entry(value) if isinstance(value, _Entry) else _named(value, names)

    wanted = [value for _, value in outputs if isinstance(value, int)]
    for k in body.needed(wanted, shared):
        right, operands = body.values[k]
        names[k] = f"v{len(part.lines)}"
        value = right % tuple(operand(read) for read in operands)
        part.lines.append(f"const double {names[k]} = {value};")
    for entry, value in outputs:
        of_value, guard = operand(value), f"if ({entry.array}) " if entry.array != "kept" else ""
        part.lines.append(f"{guard}{part.entry(entry)} = {of_value};")
    return part


def _loops(text: str, alike: Sequence[_Part]) -> list[str]:
    """Return the statements of parts that differ in the numbers of entries only."""
    numbers = np.array([part.entries for part in alike], dtype=np.intp).reshape(len(alike), -1)
    lines: list[str] = []
    begin = 0
    for end in _ends(numbers):
        if end - begin < LEAST:
            for row in numbers[begin:end].tolist():
                lines += ["{", *(f"  {line}" for line in text.format(*row).splitlines()), "}"]
        else:
            # entries whose numbers go on by the same steps from round to round
            steps = (numbers[begin + 1] - numbers[begin]).tolist()
            starts = numbers[begin].tolist()
            places = [f"{start} + {step} * k" for start, step in zip(starts, steps, strict=True)]
            lines += ["#pragma GCC ivdep", f"for (long k = 0; k < {end - begin}; k++) {{"]
            lines += [*(f"  {line}" for line in text.format(*places).splitlines()), "}"]
        begin = end
    return lines


def _ends(numbers: npt.NDArray[np.intp]) -> list[int]:
    """Return where runs of rows end that go on by the same difference."""
    # a second difference of zero: equal steps
    same = (np.diff(numbers, 2, axis=0) == 0).all(axis=1)
    ends: list[int] = []
    begin, count = 0, len(numbers)
    while begin < count:
        breaks = np.flatnonzero(~same[begin:])
        begin = int(breaks[0]) + begin + 2 if breaks.size else count
        ends.append(begin)
    return ends
