"""Types of python_functions.pyx, whose docstrings tell the rest."""

from collections.abc import Callable
from typing import Any

from daeosens.errors import NotFiniteError

class PythonFunctions:
    p: Any
    error: NotFiniteError | None
    exception: BaseException | None
    def __init__(
        self,
        n: int,
        rhs: tuple[Callable[..., Any], Callable[..., Any]],
        jacobian: tuple[Callable[..., Any], Callable[..., Any]] | None,
        p: Any,
    ) -> None: ...
    def hold(self, p: Any) -> None: ...
    @property
    def addresses(self) -> dict[str, tuple[int, int]]: ...
    @property
    def raised(self) -> int: ...
    def take_exception(self) -> BaseException | None: ...
