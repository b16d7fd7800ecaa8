"""CVODES called from C: cvodes.c, with equations that CasADi writes and gcc compiles.

Wants Debian's libsundials-dev; the functions stand in one library, made once for each problem.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from c_library import FAST_MATH
from daeosens.tracing.compilation import cache_folder, private_folder
from stiff import SYSTEMS

NAMES = ("rhs", "jacobian", "by_factors", "pulled_state", "pulled_factors")
FLAGS = ("-O3", "-march=native", *FAST_MATH, "-shared", "-fPIC")
LIBRARIES = ("cvodes", "nvecserial", "sunmatrixdense", "sunlinsoldense", "sunnonlinsolfixedpoint")


def compiled(sources: list[Path], flags: list[str]) -> ctypes.CDLL:
    """Compile C files into a library, once for each content, and load it.

    Raises
    ------
    ImportError
        What the compiler says: the contestant is missing then.
    """
    command = ["gcc", *FLAGS, *map(str, sources), *flags]
    content = b"".join(source.read_bytes() for source in sources) + " ".join(flags).encode()
    name = hashlib.sha256(content).hexdigest()[:16]
    library = private_folder(cache_folder().with_name("benchmarks")) / f"cvodes-{name}.so"
    if not library.exists():
        done = subprocess.run(
            [*command, "-o", str(library)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ImportError(f"libsundials-dev of Debian ({done.stderr.strip()[:300]})")
    return ctypes.CDLL(str(library))


SOLVER = compiled([Path(__file__).with_name("cvodes.c")], [f"-lsundials_{x}" for x in LIBRARIES])


@cache
def equations(name: str) -> tuple[Any, tuple[int, int]]:
    """Return the addresses of the five functions, and how much memory they want."""
    system = SYSTEMS[name]
    n, m = len(system.start), len(system.parameters)
    u, q, seed = ca.SX.sym("u", n), ca.SX.sym("q", m), ca.SX.sym("seed", n)
    rates = ca.vertcat(*system.rhs(ca.vertsplit(u), ca.vertsplit(q * ca.DM(system.parameters))))
    results = (
        rates,
        ca.densify(ca.jacobian(rates, u)),
        ca.densify(ca.jacobian(rates, q)),
        ca.densify(ca.jtimes(rates, u, seed, True)),
        ca.densify(ca.jtimes(rates, q, seed, True)),
    )
    functions = [
        ca.Function(name, [u, q, seed], [result], {"cse": True})
        for name, result in zip(NAMES, results, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        writer = ca.CodeGenerator("equations.c")
        for function in functions:
            writer.add(function)
        writer.generate(folder + "/")
        library = compiled([Path(folder) / "equations.c"], ["-lm"])
    # the library stays loaded as long as its functions are known
    return [getattr(library, name) for name in NAMES], (
        max(function.sz_iw() for function in functions),
        max(function.sz_w() for function in functions),
    )


def prepare(setting: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the tasks of first order."""
    system, tolerance = SYSTEMS[setting["problem"]], setting["tolerance"]
    n, m = len(system.start), len(system.parameters)
    functions, memory = equations(setting["problem"])
    start, factors = np.array(system.start), np.ones(m)
    double = ctypes.POINTER(ctypes.c_double)
    made = ctypes.c_void_p()

    def call(function: Any, shape: tuple[int, ...]) -> Any:
        out = np.empty(shape)
        code = function(made, out.ctypes.data_as(double))
        if code:
            raise RuntimeError(f"CVODES error {code}")
        return out

    code = SOLVER.create(
        n,
        m,
        int(system.stiff),
        (ctypes.c_void_p * 5)(*(ctypes.cast(function, ctypes.c_void_p) for function in functions)),
        *(ctypes.c_longlong(size) for size in memory),
        start.ctypes.data_as(double),
        factors.ctypes.data_as(double),
        *(ctypes.c_double(x) for x in (system.end, tolerance, tolerance * system.scale)),
        ctypes.byref(made),
    )
    if code:
        raise RuntimeError(f"CVODES error {code}")
    arrays = start, factors  # read by the program as long as there are tasks
    return {
        "full": lambda: call(SOLVER.forward, (m, n)).T,
        "scalar": lambda: call(SOLVER.gradient, (m + 0 * len(arrays),)),
    }
