"""Values as JSON knows them: NumPy numbers and arrays, dataclasses and paths made plain."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from daeosens.errors import InputError


def json_text(value: object) -> str:
    """Return a value as indented JSON."""
    return json.dumps(plain(value), indent=2, allow_nan=False) + "\n"


def plain(value: object) -> Any:
    """Turn a value into what JSON knows; numbers that are not finite become text.

    Raises
    ------
    InputError
        A value that holds itself.
    """
    try:
        return _plain(value)
    except RecursionError as error:
        raise InputError("a value that holds itself", expected="numbers, texts, arrays") from error


def _plain(value: object) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = cast("npt.NDArray[Any]", value).tolist()
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): _plain(entry) for key, entry in entries.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in cast("tuple[object, ...]", value)]
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (bool, int)) or value is None:
        return value
    finite = isinstance(value, float) and math.isfinite(value)
    return value if finite else str(value)
