"""C functions in the place of callbacks: numba, ctypes, cffi and SciPy name them differently."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError


class LateAddress:
    """The address of a C function that is compiled when somebody asks for it.

    Parameters
    ----------
    find : callable
        Returns it.
    """

    def __init__(self, find: Callable[[], int]) -> None:
        self._find, self._address = find, 0

    def __int__(self) -> int:
        """Return the address."""
        self._address = self._address or self._find()
        return self._address


@dataclass(frozen=True, eq=False)
class Native:
    """A C function in the place of a callback, for problems of NumPy style (``size=n``).

    All arrays are contiguous doubles, matrices by rows; ``user_data`` comes last (docs/callbacks.md
    lists the arguments of each callback).

    Parameters
    ----------
    address : int or LateAddress
        Of the function.
    user_data : int
        Address passed to it as the last argument.
    keeps : object
        What has to stay alive as long as the function is used.
    pattern : (array [rows + 1], array [nnz]), optional
        Row starts and columns of a sparse matrix (CSR), whose values the function fills.
    signature : str
        Its C signature where it is known, to be compared with what is called.
    sizes : (int, int), optional
        Numbers n of unknowns and m of parameters, where they are known: another problem is refused.
    operations : int
        About how many operations a call takes; 0: not known.

    Raises
    ------
    InputError
        An address that is none.

    Examples
    --------
    >>> import ctypes
    >>> Decay = ctypes.CFUNCTYPE(None, ctypes.c_double, *[ctypes.POINTER(ctypes.c_double)] * 3)
    >>> decay = admit_native(Decay(lambda t, u, p, out: None))
    >>> decay.user_data
    0
    """

    address: int | LateAddress
    user_data: int = 0
    keeps: Any = None
    pattern: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | None = None
    signature: str = ""
    sizes: tuple[int, int] | None = None
    operations: int = 0

    def __post_init__(self) -> None:
        late = isinstance(self.address, LateAddress)
        if not late and (not isinstance(self.address, int) or self.address <= 0):
            raise InputError(
                f"the address of a C function is {self.address!r}",
                expected="that of a function that was loaded or compiled",
            )

    @property
    def where(self) -> tuple[int, int]:
        """Addresses of the function, which is compiled now at the latest, and of its user data."""
        return int(self.address), self.user_data


def admit_native(callback: object) -> Native | None:
    """Return a C function as ``Native``; None if the object is none.

    Parameters
    ----------
    callback : object
        ``numba.cfunc``, a ctypes or cffi function pointer, ``scipy.LowLevelCallable`` (with its
        user data), or ``Native``.

    Raises
    ------
    InputError
        A pointer that is NULL.

    Examples
    --------
    >>> admit_native(lambda t, u, p: -u) is None
    True
    """
    if isinstance(callback, Native):
        return callback
    if isinstance(callback, _FUNCTION_POINTER):
        pointer: Any = callback
        address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
        return Native(address, keeps=callback, signature=_signature(callback))
    kind = type(callback)
    if kind.__module__.partition(".")[0] == "scipy" and kind.__name__ == "LowLevelCallable":
        return _from_scipy(callback)
    if kind.__module__ == "_cffi_backend":
        return _from_cffi(callback)
    # numba is not imported: what its compiled functions look like is enough.
    address: Any = getattr(callback, "address", None)
    if isinstance(address, int) and hasattr(callback, "native_name"):
        return Native(address, keeps=callback, signature=_signature_by_numba(callback))
    return None


def check_signature(native: Native, name: str, arrays: int, *, returns: bool) -> None:
    """Compare a signature that is known with the one that a callback of that name has.

    Parameters
    ----------
    native : Native
        The C function.
    name : str
        What the user calls it.
    arrays : int
        How many arrays it takes and fills.
    returns : bool
        Whether it returns a number.

    Raises
    ------
    InputError
        They differ; both are shown.
    """
    if not native.signature:
        return
    kind = "double" if returns else "void"
    expected = f"{kind} (double, {', '.join(['double *'] * arrays)}, void *)"
    matched = re.fullmatch(r"\s*(\w+)\s*\(([^()]*)\)\s*", native.signature.replace("const ", ""))
    # The return type and the types of the arguments in between the brackets.
    types = [argument.replace(" ", "") for argument in matched[2].split(",")] if matched else []
    data = types[1 + arrays :]
    right = (
        matched is not None
        and matched[1] == kind
        and types[:1] == ["double"]
        and len(types) >= 1 + arrays
        and set(types[1 : 1 + arrays]) in ({"double*"}, {"void*"})  # numba's ctypes say void *
        and len(data) <= 1
        and all(kind.endswith("*") for kind in data)
    )
    if not right:
        raise InputError(
            f"{name} is a C function of signature {native.signature!r}",
            expected=repr(expected),
        )


_FUNCTION_POINTER: Any = ctypes.CFUNCTYPE(None).__base__

_capsule_name: Any = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_capsule_pointer: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_context: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyCapsule_GetContext", ctypes.pythonapi)
)


def _from_scipy(callback: Any) -> Native:
    """Read the capsule that SciPy makes of whatever it was given."""
    # A LowLevelCallable is a tuple whose own indexing is forbidden: its first entry is a capsule
    # with function, signature and user data.
    capsule: Any = tuple[Any].__getitem__(callback, 0)
    return Native(
        _capsule_pointer(capsule, _capsule_name(capsule)) or 0,
        _capsule_context(capsule) or 0,
        keeps=callback,
        signature=callback.signature,
    )


def _from_cffi(callback: Any) -> Native | None:
    ffi: Any = sys.modules["_cffi_backend"].FFI()
    kind = ffi.typeof(callback) if isinstance(callback, ffi.CData) else None
    if kind is None or kind.kind != "function":
        return None
    signature = f"{kind.result.cname} ({', '.join(argument.cname for argument in kind.args)})"
    return Native(int(ffi.cast("uintptr_t", callback)), keeps=callback, signature=signature)


def _signature_by_numba(callback: Any) -> str:
    try:
        return _signature(callback.ctypes)
    except TypeError:  # types that ctypes has not
        return ""


def _signature(pointer: Any) -> str:
    """Return the C signature of a ctypes pointer, empty where it does not know its arguments."""
    if pointer.argtypes is None:
        return ""
    # int is what ctypes takes functions to return about which nothing was said
    returns = None if pointer.restype is ctypes.c_int else pointer.restype
    return f"{_c_type(returns)} ({', '.join(map(_c_type, pointer.argtypes))})"


def _c_type(kind: Any) -> str:
    if kind is None:
        return "void"
    if issubclass(kind, ctypes.c_void_p):
        return "void *"
    if hasattr(kind, "contents"):
        return f"{_c_type(kind._type_)} *"
    return str(kind.__name__).removeprefix("c_")
