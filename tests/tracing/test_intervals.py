"""Enclosures of interval arithmetic contain every true value, and are nearly as small as can be.

References are balls of python-flint (Arb) with 120 bits at points of the boxes.
"""

import math
from functools import cache

import casadi as ca
import numpy as np
import pytest
from flint import arb, ctx

from daeosens.errors import InputError
from daeosens.tracing.daeo.intervals import interval_function
from daeosens.tracing.daeo.tape import EMPTY, UNDEFINED, make_tape

NAN = arb("nan")
INSTRUCTIONS = {
    value: name.removeprefix("OP_") for name, value in vars(ca).items() if name.startswith("OP_")
}


TOTAL = ("ADD", "SUB", "MUL", "SQ", "TWICE", "EXP", "EXPM1", "SINH", "COSH")


@pytest.fixture(autouse=True)
def precision():
    before, ctx.prec = ctx.prec, 120
    yield
    ctx.prec = before


# ---- the reference -------------------------------------------------------------------------------


class UndecidedError(Exception):
    """Balls overlap, so that a comparison of their numbers is not known."""


def whole(x):
    """Return a ball's integer part downwards, where it is known."""
    low, high = x.floor().unique_fmpz(), x.ceil().unique_fmpz()
    if low is None or high is None:
        raise UndecidedError
    return arb(low)


def less(a, b):
    if a < b:
        return True
    if a >= b:
        return False
    raise UndecidedError


def equal(a, b):
    if a.is_exact() and b.is_exact():
        return bool(a == b)
    if a < b or a > b:
        return False
    raise UndecidedError


def truth(x):
    return not equal(x, arb(0))


def power(a, b):
    if a.is_zero() and a.is_exact():
        return arb(1) if equal(b, arb(0)) else (arb(0) if less(arb(0), b) else NAN)
    if less(a, arb(0)) and not b.is_integer():
        return NAN
    return a**b


def fmod(a, b):
    if equal(b, arb(0)):
        return NAN
    quotient = a / b
    n = whole(quotient) if not less(quotient, arb(0)) else -whole(-quotient)
    return a - n * b


def remainder(a, b):
    if equal(b, arb(0)):
        return NAN
    return a - whole(a / b + arb(0.5)) * b


def copysign(a, b):
    if equal(b, arb(0)):
        raise UndecidedError
    return abs(a) if less(arb(0), b) else -abs(a)


def atan2(a, b):
    return arb.atan2(a, b) if truth(a) or truth(b) else arb(0)


def sign(a):
    return arb(0) if equal(a, arb(0)) else arb(1 if less(arb(0), a) else -1)


def flag(value):
    return arb(1 if value else 0)


POINTS = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: NAN if equal(b, arb(0)) else a / b,
    "NEG": lambda a: -a,
    "SQ": lambda a: a * a,
    "TWICE": lambda a: a + a,
    "INV": lambda a: NAN if equal(a, arb(0)) else 1 / a,
    "EXP": arb.exp,
    "EXPM1": arb.expm1,
    "LOG": arb.log,
    "LOG1P": arb.log1p,
    "SQRT": arb.sqrt,
    "SIN": arb.sin,
    "COS": arb.cos,
    "TAN": arb.tan,
    "ASIN": arb.asin,
    "ACOS": arb.acos,
    "ATAN": arb.atan,
    "SINH": arb.sinh,
    "COSH": arb.cosh,
    "TANH": arb.tanh,
    "ASINH": arb.asinh,
    "ACOSH": arb.acosh,
    "ATANH": arb.atanh,
    "ERF": arb.erf,
    "FABS": abs,
    "SIGN": sign,
    "FLOOR": whole,
    "CEIL": lambda a: -whole(-a),
    "POW": power,
    "CONSTPOW": power,
    "ATAN2": atan2,
    "HYPOT": lambda a, b: (a * a + b * b).sqrt(),
    "FMOD": fmod,
    "REMAINDER": remainder,
    "COPYSIGN": copysign,
    "FMIN": lambda a, b: a if less(a, b) else b,
    "FMAX": lambda a, b: b if less(a, b) else a,
    "LT": lambda a, b: flag(less(a, b)),
    "LE": lambda a, b: flag(not less(b, a)),
    "EQ": lambda a, b: flag(equal(a, b)),
    "NE": lambda a, b: flag(not equal(a, b)),
    "NOT": lambda a: flag(not truth(a)),
    "AND": lambda a, b: flag(truth(a) and truth(b)),
    "OR": lambda a, b: flag(truth(a) or truth(b)),
    "IF_ELSE_ZERO": lambda a, b: b if truth(a) else arb(0),
    "LOG10": lambda a: a.log() / arb.const_log10(),
}


def instructions(function):
    """Return the instructions of a CasADi function: name, places read and written, value."""
    rows = []
    for k in range(function.n_instructions()):
        number = function.instruction_id(k)
        value = function.instruction_constant(k) if number == ca.OP_CONST else None
        places = function.instruction_input(k), function.instruction_output(k)
        rows.append((INSTRUCTIONS[number], *places, value))
    return rows


def at_point(rows, point, n_outputs):
    """Carry out instructions on balls; None where a value is not known or not defined."""
    work, results = {}, [None] * n_outputs
    for name, read, written, value in rows:
        if name == "OUTPUT":
            results[written[1]] = work[read[0]]
            continue
        if name == "INPUT":
            work[written[0]] = arb(point[read[0]])
        elif name == "CONST":
            work[written[0]] = arb(value)
        else:
            arguments = [work[place] for place in read]
            if name == "IF_ELSE_ZERO" and arguments[0] is not None and arguments[0].is_finite():
                work[written[0]] = arguments[1] if truth(arguments[0]) else arb(0)
            elif all(
                argument.is_finite() or (name in ("LT", "LE") and not argument.is_nan())
                for argument in arguments
            ):
                work[written[0]] = result = POINTS[name](*arguments)
                if (
                    name in TOTAL and not result.is_finite()
                ):  # sinh(cosh(2000)): no ball is so large
                    raise UndecidedError
                # balls that reach out of the domain, of numbers that may be in it
                exact = all(argument.is_exact() for argument in arguments)
                middles = [argument.mid() for argument in arguments]
                if not (exact or result.is_finite()) and POINTS[name](*middles).is_finite():
                    raise UndecidedError
            else:
                work[written[0]] = NAN
    return results


def check_enclosed(rows, boxes, values, flags, rng, points=3):
    """Check that values at points of the boxes lie in the enclosures; return how many did."""
    checked = 0
    for box, value, flag_row in zip(boxes, values, flags, strict=True):
        for k in range(points):
            weight = rng.random(len(box)) if k > 1 else rng.integers(0, 2, len(box))
            point = np.clip(box[:, 0] + weight * (box[:, 1] - box[:, 0]), box[:, 0], box[:, 1])
            try:
                results = at_point(rows, point.tolist(), len(value))
            except UndecidedError:
                continue
            for result, (low, high), marks in zip(results, value, flag_row, strict=True):
                checked += 1
                where = (point.tolist(), box.tolist(), str(result), low, high, int(marks))
                if not result.is_finite():
                    # overflow of doubles is no matter of balls
                    assert marks & UNDEFINED or math.isinf(low) or math.isinf(high), where
                    continue
                assert not marks & EMPTY, where
                outside = result < low or result > high
                assert not outside, where
    return checked


# ---- random intervals ----------------------------------------------------------------------------


SPECIAL = np.array([0.0, 1.0, -1.0, 0.5, 2.0, 3.0, *(np.arange(-8, 9) * np.pi / 2)])


def centers(rng, shape):
    kinds = rng.integers(0, 5, shape)
    size = 10.0 ** rng.uniform(-8, 8, shape) * rng.choice([-1.0, 1.0], shape)
    huge = 10.0 ** rng.uniform(-300, 300, shape) * rng.choice([-1.0, 1.0], shape)
    choices = [rng.uniform(-3, 3, shape), rng.uniform(-50, 50, shape), size]
    return np.choose(
        kinds, [*choices, rng.choice(SPECIAL, shape), np.where(rng.random(shape) < 0.2, huge, size)]
    )


def intervals(rng, shape):
    """Return intervals: points, a few ulps wide, wide, with ends at special places."""
    center = centers(rng, shape)
    kinds = rng.integers(0, 5, shape)
    relative = 10.0 ** rng.uniform(-16, 1, shape) * np.maximum(np.abs(center), 1e-300)
    absolute = 10.0 ** rng.uniform(-12, 2, shape)
    widths = np.choose(kinds, [0 * center, np.spacing(center) * 2, relative, absolute, absolute])
    other = np.where(rng.random(shape) < 0.15, centers(rng, shape), center + widths)
    return np.stack([np.minimum(center, other), np.maximum(center, other)], axis=-1)


def special_points(low, high):
    """Return points of an interval where functions have extrema, or jump."""
    inner = [x for x in SPECIAL.tolist() if low < x < high]
    if math.floor(high) != math.floor(low) and high - low < 1e15:
        inner += [float(math.floor(high))]
    first = math.ceil(low / (math.pi / 2)) if abs(low) < 1e6 else 0
    inner += [x for x in ((first + k) * (math.pi / 2) for k in range(4)) if low < x < high]
    return inner


X, Y = ca.SX.sym("x"), ca.SX.sym("y")
BINARY = ("ADD", "SUB", "MUL", "DIV", "POW", "ATAN2", "HYPOT", "FMOD", "REMAINDER", "COPYSIGN")
BINARY += ("FMIN", "FMAX", "LT", "LE", "EQ", "NE", "AND", "OR", "IF_ELSE_ZERO")
UNARY = tuple(name for name in POINTS if name not in (*BINARY, "CONSTPOW", "LOG10"))
EXPONENTS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 11.0, -1.0, -2.0, -3.0, 0.5, 1.5, 1 / 3, -0.5, -2.3)


@cache
def elementary(name):
    """Return the tape and instructions of one operation."""
    code = getattr(ca, f"OP_{name}", None)
    if name in UNARY:
        inputs, graph = [X], ca.SX.unary(code, X)
    else:
        inputs, graph = [X, Y], ca.SX.binary(code, X, Y)
    return make_tape(inputs, [graph]), instructions(ca.Function("f", inputs, [graph]))


def check_operation(name, rng, count):
    tape, rows = elementary(name)
    boxes = intervals(rng, (count, len(tape.inputs)))
    if name in ("FMOD", "REMAINDER"):  # quotients of more digits than the reference has
        boxes = np.clip(boxes, -1e9, 1e9)
        boxes[:, 1] = np.where(np.abs(boxes[:, 1]) < 1e-9, 0.25, boxes[:, 1])
        boxes[:, 1] = np.sort(boxes[:, 1], axis=-1)
    if name == "POW":
        whole_ = rng.random(count) < 0.4
        boxes[whole_, 1] = rng.choice(EXPONENTS, (whole_.sum(), 1))
        boxes[:, 1] = np.clip(boxes[:, 1], -200, 200)
    values, flags = tape(boxes)
    checked = check_enclosed(rows, boxes, values, flags, rng, points=4)
    return checked + check_special(rows, boxes, values, flags)


def check_special(rows, boxes, values, flags):
    if boxes.shape[1] != 1:
        return 0
    count = 0
    for box, value, marks in zip(boxes, values, flags, strict=True):
        for x in special_points(*box[0]):
            thin = np.array([[[x, x]]])
            count += check_enclosed(
                rows, thin, value[None], marks[None], np.random.default_rng(0), 1
            )
    return count


def test_every_operation_encloses(rng):
    for name in (*UNARY, *BINARY):
        assert check_operation(name, rng, 200) > 200


@pytest.mark.parametrize("block", range(300))
def test_operations_enclose_in_many_cases(block, rng):
    """At least 2 000 random boxes a block; 600 000 with --all, at four points and more each."""
    names = (*UNARY, *BINARY)
    for name in names:
        assert check_operation(name, rng, 2000 // len(names) + 1)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_enclose(exponent, rng):
    tape = make_tape([X], [ca.power(X, exponent)])
    rows = instructions(ca.Function("f", [X, Y], [ca.SX.binary(ca.OP_POW, X, Y)]))
    boxes = intervals(rng, (300, 1))
    values, flags = tape(boxes)
    both = np.concatenate([boxes, np.full((300, 1, 2), exponent)], axis=1)
    assert check_enclosed(rows, both, values, flags, rng) > 300


# ---- random expressions --------------------------------------------------------------------------


def expression(rng, depth, inputs):
    """Return a random graph as a modeller writes them, with guards and kinks."""
    if depth == 0 or rng.random() < 0.1:
        choice = rng.integers(0, len(inputs) + 1)
        return inputs[choice] if choice < len(inputs) else ca.SX(round(rng.uniform(-3, 3), 2))

    def sub():
        return expression(rng, depth - 1, inputs)

    kind = rng.integers(0, 12)
    if kind < 5:
        names = ["ADD", "SUB", "MUL", "MUL", "DIV", "FMIN", "FMAX", "ATAN2", "HYPOT"]
        return ca.SX.binary(getattr(ca, f"OP_{rng.choice(names)}"), sub(), sub())
    if kind < 9:
        names = [*UNARY, "SIN", "COS", "EXP", "SQ", "SQ"]
        return ca.SX.unary(getattr(ca, f"OP_{rng.choice(names)}"), sub())
    if kind == 9:
        return sub() ** float(rng.choice(EXPONENTS))
    if kind == 10:
        a = sub()
        return a * a * a if rng.random() < 0.5 else ca.sqrt(a * a + 1)
    return ca.if_else(sub() < sub(), sub(), sub())


def check_expression(rng, n_boxes):
    inputs = [ca.SX.sym(name) for name in "xyz"]
    graph = expression(rng, int(rng.integers(2, 5)), inputs)
    slope = ca.gradient(graph, ca.vertcat(*inputs[:1]))
    outputs = [graph, slope, ca.jacobian(slope, inputs[0])]
    tape = make_tape(inputs, outputs)
    # CasADi's search for common parts replaces a - a by 0 even where a is not defined
    function = ca.Function("f", inputs, [ca.densify(ca.vertcat(*outputs))], {"cse": True})
    center = rng.uniform(-3, 3, (n_boxes, 3))
    width = 10.0 ** rng.uniform(-10, 1, (n_boxes, 1)) * rng.integers(0, 2, (n_boxes, 3))
    boxes = np.stack([center - width, center + width], axis=-1)
    values, flags = tape(boxes)
    return check_enclosed(instructions(function), boxes, values, flags, rng, points=2)


def test_random_expressions_enclose(rng):
    for _ in range(60):
        check_expression(rng, 10)


@pytest.mark.parametrize("block", range(300))
def test_random_expressions_enclose_in_many_cases(block, rng):
    """2 000 boxes of 40 expressions a block, with derivatives; 600 000 with --all."""
    for _ in range(40):
        check_expression(rng, 50)


# ---- how wide they are --------------------------------------------------------------------------


def true_range(name, low, high):
    """Return the range of a continuous function of one number, by its ends and extrema."""
    points = [low, high, *(x for x in special_points(low, high) if name in ("SIN", "COS"))]
    points += [0.0] if low < 0 < high else []
    values = [POINTS[name](arb(x)) for x in points]
    smallest, largest = values[0], values[0]
    for value in values[1:]:
        smallest, largest = smallest.min(value), largest.max(value)
    return smallest, largest


DOMAINS = {"LOG": (1e-3, 9), "LOG1P": (-0.9, 9), "SQRT": (0, 9), "ASIN": (-1, 1), "ACOS": (-1, 1)}
DOMAINS |= {"ACOSH": (1, 9), "ATANH": (-0.99, 0.99), "TAN": (-1.5, 1.5), "INV": (0.01, 9)}


@pytest.mark.parametrize("name", [name for name in UNARY if name not in ("FLOOR", "CEIL", "NOT")])
def test_enclosures_are_tight(name, rng):
    """Within ten units in the last place of the range; arithmetic within two."""
    start, stop = DOMAINS.get(name, (-9, 9))
    ends = np.sort(rng.uniform(start, stop, (300, 2)))
    ends[:100, 1] = ends[:100, 0]
    tape, _ = elementary(name)
    values, flags = tape(ends[:, None, :])
    units = 2 if name in ("NEG", "SQ", "TWICE", "INV", "SQRT", "FABS", "SIGN") else 10
    assert not (flags & UNDEFINED).any()
    for (low, high), ((enclosed_low, enclosed_high),) in zip(ends, values, strict=True):
        smallest, largest = true_range(name, low, high)
        assert smallest - enclosed_low <= units * np.spacing(abs(enclosed_low)) + 1e-300
        assert enclosed_high - largest <= units * np.spacing(abs(enclosed_high)) + 1e-300


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV", "POW", "ATAN2"])
def test_enclosures_of_two_numbers_are_tight(name, rng):
    boxes = np.sort(rng.uniform(0.1, 5, (300, 2, 2)))
    tape, _ = elementary(name)
    values, _ = tape(boxes)
    for (x, y), ((low, high),) in zip(boxes, values, strict=True):
        corners = [POINTS[name](arb(a), arb(b)) for a in x for b in y]
        smallest, largest = corners[0], corners[0]
        for value in corners[1:]:
            smallest, largest = smallest.min(value), largest.max(value)
        assert smallest - low <= 5 * np.spacing(abs(low))
        assert high - largest <= 5 * np.spacing(abs(high))


def enclosed(function, *boxes):
    """Return value and flags of a NumPy function of one variable, traced, over intervals."""
    h = interval_function(lambda t, x, y, p: function(y[0]), 0, 1)
    return h(0.0, [], np.array(boxes)[:, None, :])


def test_exact_results_stay_exact():
    result = enclosed(lambda y: np.sqrt(1 - y) + 3 * y - 0.5, [0, 1], [0.75, 0.75])
    assert result.value.tolist() == [[-0.5, 3.5], [2.25, 2.25]]
    assert result.defined.all()


@pytest.mark.parametrize(
    ("function", "box", "value"),
    [
        (lambda y: np.maximum(y, -y), [-1, 2], [0, 2]),
        (lambda y: np.minimum(y, 1.0), [-1, 2], [-1, 1]),
        (lambda y: np.maximum(np.sin(y), y), [-1, 2], [-0.8414709848078965, 2]),
        (lambda y: np.maximum(2 * y, 0.0), [-1, 2], [0, 4]),
        (lambda y: np.clip(y, 0.0, 1.0), [-1, 2], [0, 1]),
        (lambda y: np.logaddexp(y, 0.0), [-1, -1], [0.31326168751822286, 0.31326168751822286]),
        (lambda y: np.where(y > 0, 5.0 + y, 4.0), [-1, 2], [4, 7]),
        (lambda y: y**3, [-1, 2], [-1, 8]),
        (lambda y: y * y * y * y, [-1, 2], [0, 16]),
        (lambda y: np.hypot(y, 3.0), [-4, 4], [3, 5]),
        (lambda y: 1 / y, [0, 2], [0.5, np.inf]),
        (lambda y: 1 / y, [-1, 2], [-np.inf, np.inf]),
        (lambda y: np.where(y > 0, y, -y), [-1, 2], [0, 2]),
        (lambda y: np.abs(y) ** 1.5, [-4, 1], [0, 8]),
        (np.sqrt, [-1, 4], [0, 2]),
        (np.floor, [0.5, 1.5], [0, 1]),
    ],
)
def test_ranges_of_what_modellers_write(function, box, value):
    assert enclosed(function, box).value[0] == pytest.approx(value, rel=1e-14)


def test_gradients_at_kinks_have_the_values_of_all_sides():
    result = enclosed(lambda y: np.abs(y) + np.maximum(2 * y, 0.0), [-1, 1], [0.5, 1])
    low, high = result.gradient[0, 0]
    assert low <= -1
    assert high >= 3
    assert result.gradient[1, 0].tolist() == [3, 3]
    assert result.continuous.all()


def test_what_is_not_defined_or_jumps_is_said():
    result = enclosed(np.log, [1, 2], [-1, 2], [-2, -1])
    assert result.defined.tolist() == [True, False, False]
    result = enclosed(lambda y: np.where(y > 0, 1.0, 2.0), [-1, 1], [1, 2])
    assert result.continuous.tolist() == [False, True]
    assert result.defined.all()
    guarded = enclosed(lambda y: np.where(y > 1, np.sqrt(y - 1), y), [-1, 0.5], [1.5, 2])
    assert guarded.continuous.all()


def test_all_inputs_may_be_intervals():
    def h(t, x, y, p):
        return t + x[0] * y[0] + p.a[1]

    result = interval_function(h, 1, 1, {"a": (2,)})([0, 1], [[1, 2]], [[[3, 4]]], [[0, 9], [5, 6]])
    assert result.value.tolist() == [[8, 15]]
    assert result.gradient.tolist() == [[[1, 2]]]


def test_what_cannot_be_traced_is_an_error_with_the_remedy():
    with pytest.raises(InputError, match="returned shape"):
        interval_function(lambda t, x, y, p: y, 0, 2)
    with pytest.raises(InputError, match="n_y = 0"):
        interval_function(lambda t, x, y, p: 0.0, 0, 0)
    with pytest.raises(InputError, match="branch depends on the data"):
        interval_function(lambda t, x, y, p: 1.0 if y[0] > 0 else y[0], 0, 1)
    h = interval_function(lambda t, x, y, p: x[0] + y[0], 1, 1)
    with pytest.raises(InputError, match=r"x has the shape \(2,\)"):
        h(0.0, [1.0, 2.0], [[[0.0, 1.0]]])
    with pytest.raises(InputError, match="lower ends first"):
        h(0.0, [[2.0, 1.0]], [[[0.0, 1.0]]])
