from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

class DerivativeNumber:
    def whole(self) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

def install(
    whole: Callable[..., Any],
    operate: Callable[..., Any],
    ufunc: Callable[..., Any],
    function: Callable[..., Any],
) -> None: ...
def entry(array: Any, k: int) -> DerivativeNumber | None: ...
def together(
    things: list[Any],
) -> (
    tuple[
        npt.NDArray[np.float64],
        npt.NDArray[np.float64],
        npt.NDArray[np.float64] | None,
        npt.NDArray[np.float64] | None,
    ]
    | None
): ...
def value_of_number(x: DerivativeNumber) -> float: ...

BRANCHES: list[list[Any]]
