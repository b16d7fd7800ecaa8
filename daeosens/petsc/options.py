"""PETSc options for the extent of a block: library default < config < code < command line.

PETSc has one options database per process.  A scope puts its options into it and takes them out
again; one that nobody reads is an error that names the nearest known option.  PETSc 3.26: names
ignore case; asking for an option marks it as used; a new value keeps that mark, but an option that
was deleted and set again starts unmarked.  Nothing is collective: give every rank the same options.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from petsc4py import PETSc

from daeosens.errors import OptionError, nearest, require
from daeosens.petsc._kernels import no_options
from daeosens.petsc.option_names import advice, is_known, is_late, known_options, split_prefix

Options: TypeAlias = Mapping[str, object]
"""Names without dash; values: None or True (a flag), False, number, text, or several of these."""

LAYERS = ("library default", "config", "code")
NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)
AT_EXIT = frozenset(
    {"citations", "get_total_flops", "log", "log_all", "log_mpe", "malloc_dump", "memory_view"}
    | {"mpidump", "nox", "nox_warning", "objects_dump", "options_left", "options_view", "x_virtual"}
)
"""Command-line options that PETSc 3.26 reads when the program ends."""


_REFUSALS = frozenset({56, 62, 63, 83, 86, 92, 95})
"""PETSc's error codes of values: not supported, wrong, out of range, no type, no package, input."""


@dataclass(frozen=True)
class _Entry:
    """An option as PETSc takes it (None: a flag), and the index in LAYERS of where it came from."""

    text: str | None
    layer: int


_inserted: dict[str, _Entry] = {}
"""What the open scopes have put into the database, of which, too, there is one per process."""


@dataclass(frozen=True)
class Scope:
    """The options of an open ``scoped_options`` block, by lower-case name without the prefix."""

    prefix: str
    entries: Mapping[str, _Entry]

    def check_used(self, *, final: bool = False) -> None:
        """Refuse options of config and code that nothing has read.  Call it inside the block.

        One overruled by the command line or an outer scope counts as used if that one was.

        Parameters
        ----------
        final : bool
            False after set-up: options that PETSc may read during the solve (``..._view``, ``pc_``,
            ``mat_``, those of solvers inside solvers) are let pass if spelt correctly.

        Raises
        ------
        OptionError
            Names each unread option, its value, where it came from, and the nearest known option.
        """
        used = PETSc.Options().used
        unread = (
            f"{_shown(self.prefix + name, entry.text)} ({LAYERS[entry.layer]}): "
            + advice(self.prefix, name)
            for name, entry in self.entries.items()
            if entry.layer > 0 and not used(self.prefix + name) and (final or not is_late(name))
        )
        _refuse("PETSc options that nothing reads", unread)


@contextmanager
def scoped_options(
    *,
    defaults: Options | None = None,
    config: Options | None = None,
    code: Options | None = None,
    prefix: str = "",
) -> Generator[Scope]:
    """Add options to PETSc's database for the extent of a ``with`` block; later layers win.

    Whatever no scope has put into the database (command line, PETSC_OPTIONS, the user's own
    ``PETSc.Options()``) wins over all layers.  Of nested scopes the inner one wins, unless the
    outer one's option is of a higher layer: an inner default yields to an outer config.

    Parameters
    ----------
    defaults, config, code : Options, optional
        PETSc's monitors and views are switched on by None; False is an error to them, not "off".
    prefix : str
        Options prefix of the objects that are to read them; put before every name.

    Raises
    ------
    OptionError
        A name or prefix with a dash or other impossible characters, or a value of a wrong type; a
        value that PETSc refuses inside the block, see ``refused_value``.

    Examples
    --------
    >>> with scoped_options(defaults={"snes_rtol": 1e-10}, code={"snes_max_it": 5}) as scope:
    ...     PETSc.SNES().create().setFromOptions()
    ...     scope.check_used()
    """
    layers = list(zip(LAYERS, (defaults or {}, config or {}, code or {}), strict=True))
    faults = [_faults({prefix: None} if prefix else {}, "prefix")]
    faults += [_faults(options, where) for where, options in layers]
    _refuse("PETSc options", (line for lines in faults for line in lines))

    entries = {
        name.lower(): _Entry(_text(value), layer)
        for layer, (_, options) in enumerate(layers)
        for name, value in options.items()
    }
    # Asked before anything is put in: what is there now and is of no scope is the user's, and
    # wins.
    database, not_ours = PETSc.Options(), _command_line()
    before = {name.lower() for name in database.getAll()}
    named = {prefix.lower() + name: entry for name, entry in entries.items()}
    # What is covered now has to come back at the end, with its mark of having been read.
    outer = {name: (_inserted[name], database.used(name)) for name in named if name in _inserted}
    placed = [
        name
        for name, entry in named.items()
        if name not in not_ours and (name not in outer or entry.layer >= outer[name][0].layer)
    ]
    try:
        for name in placed:
            _insert(name, named[name])
        yield Scope(prefix, entries)
    except PETSc.Error as error:
        refused = refused_value(error)
        if refused is None:
            raise
        raise refused from error
    finally:
        after = {name.lower() for name in database.getAll()}
        if not after.issuperset(placed):  # PETSc has put new names in the place of old ones
            for name in after - before:
                database.delValue(name)
        for name in placed:
            database.delValue(name)
            del _inserted[name]
            if name in outer:
                entry, was_used = outer[name]
                _insert(name, entry)
                if was_used:
                    # Asking is the only way to mark an option as used.
                    database.hasName(name)


def refused_value(error: PETSc.Error) -> OptionError | None:
    """Return what names the option whose value PETSc has refused; None for other errors.

    PETSc 3.26 tells the value, at the most: options that have it are named, or all that are not the
    library's own if none has.  Call it while they are in the database; not collective.

    Parameters
    ----------
    error : PETSc.Error
        What PETSc has raised, also because of another exception (which is no refusal).

    Examples
    --------
    >>> with scoped_options(code={"snes_max_it": "many"}):
    ...     PETSc.SNES().create().setFromOptions()
    Traceback (most recent call last):
        ...
    daeosens.errors.OptionError: PETSc option snes_max_it = many: Input string many has no integer \
value (do not include . in it)
      expected: a value that PETSc takes here
      try: another value, or -help on the command line, which lists what PETSc takes
    """
    # An exception of a callback inside PETSc is no refusal of an option.
    if error.__cause__ is not None or getattr(error, "ierr", 0) not in _REFUSALS:
        return None
    message = str(error).splitlines()[-1].partition("] ")[2].strip()
    defaults = {name for name, entry in _inserted.items() if entry.layer == 0}
    options = [
        (name, text)
        for name, text in PETSc.Options().getAll().items()
        if name.lower() not in defaults
    ]
    words = [word.strip("\"'-.,") for word in message.split()]
    named = [option for option in options if option[0] in words]
    named = named or [option for option in options if any(_same(option[1], word) for word in words)]
    listed = " or ".join(_shown(*option) for option in named or options)
    if not listed:
        return None
    return OptionError(
        f"PETSc option {listed}: {message}",
        expected="a value that PETSc takes here",
        remedy="another value, or -help on the command line, which lists what PETSc takes",
    )


def unused_command_line(*, prefixes: Sequence[str] = (), final: bool = False) -> list[str]:
    """Return the options (sorted, without dash) that came from no scope and that nothing has read.

    Passed over are a driver's own ``--flags``, what PETSc reads at exit, and, unless ``final``,
    what it may read during the solve.  ``prefixes`` are the options prefixes used by the program.
    """
    used = PETSc.Options().used
    return sorted(
        name
        for name in _command_line() - AT_EXIT
        # Before the end of a solve it cannot be told that late options are read by nobody.
        if not used(name) and (final or not is_late(split_prefix(name, prefixes)[1]))
    )


def check_command_line(*, prefixes: Sequence[str] = (), final: bool = False) -> None:
    """Raise OptionError if ``unused_command_line`` finds any, with the nearest known options."""
    names = unused_command_line(prefixes=prefixes, final=final)
    lines = (f"-{name}: {advice(*split_prefix(name, prefixes))}" for name in names)
    _refuse("command-line options that nothing reads", lines)


def nothing_for_ts() -> bool:
    """Whether the database holds nothing that a TS could read: no options, or TAO's only."""
    return no_options() or all(name.lower().startswith("tao_") for name in PETSc.Options().getAll())


def validate_names(options: Options, where: str, *, prefixes: Sequence[str] = ()) -> None:
    """Check names and values before anything expensive, all in one go.

    Parameters
    ----------
    options : Options
        As for ``scoped_options``.
    where : str
        Where they came from, for the message.
    prefixes : sequence of str
        Options prefixes used by the program, which may stand before a name.

    Raises
    ------
    OptionError
        Names that PETSc does not know, also behind the prefix of an inner solver (``sub_``,
        ``mg_levels_1_``, ``fieldsplit_u_``), with the nearest known ones; values of a wrong type.
    """
    require(options, Mapping, where, 'options={"snes_rtol": 1e-10}')
    names = (name for name in options if isinstance(name, str) and NAME.fullmatch(name))
    split = [split_prefix(name, prefixes) for name in names]
    unknown = (f'"{own}{name}": {advice(own, name)}' for own, name in split if not is_known(name))
    _refuse(f"{where}: PETSc options", [*_faults(options, where), *unknown])


def _command_line() -> set[str]:
    """Return the lower-case names in the database that are no scope's and no driver's --flag."""
    database = PETSc.Options()
    names = {name.lower() for name in database.getAll()} - _inserted.keys()
    # getAll lists --name like -name; asking for "--name" marks only that one as used
    return {name for name in names if not database.hasName(f"--{name}") or database.hasName(name)}


def _insert(name: str, entry: _Entry) -> None:
    """Put an option into the database, not marked as used."""
    database = PETSc.Options()
    database.delValue(name)
    _inserted[name] = entry
    database.setValue(name, entry.text)


def _word(value: object) -> str:
    """Write one number, truth value or text as PETSc reads it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real) and not math.isnan(value):
        return repr(float(value))
    raise TypeError


def _text(value: object) -> str | None:
    """Write an option's value as PETSc reads it, None for a flag; TypeError if PETSc cannot."""
    if value is None or value is True:
        return None
    plain: object = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(plain, Sequence) and not isinstance(plain, str | bytes) and len(plain):
        return ",".join(_word(item) for item in cast("Sequence[object]", plain))
    return _word(plain)


def _same(text: str | None, word: str) -> bool:
    """Whether a word of a message is an option's value, or one of several."""
    if word in (text or "").split(","):
        return True
    try:
        return abs(float(word)) == abs(float(text or ""))
    except ValueError:
        return False


def _shown(name: str, text: str | None) -> str:
    return name if text is None else f"{name} = {text}"


def _faults(options: Options, where: str) -> Iterator[str]:
    """Yield a line for each name that PETSc could not take, and for each such value."""
    for name, value in options.items():
        if not isinstance(name, str):
            yield f"{name!r} ({where}): a name is a str, such as 'snes_rtol'"
        elif not NAME.fullmatch(name):
            bare = name.lstrip("-")
            guess = nearest(bare, known_options().values()) or f'"{bare}"'
            yield f'"{name}" ({where}): write {guess}, without dash or spaces'
        try:
            _text(value)
        except TypeError:
            shown = " ".join(repr(value).split())
            yield f"{name} = {shown} ({where}): not a value for an option"


def _refuse(heading: str, lines: Iterable[str]) -> None:
    """Raise one OptionError for all lines, if there are any."""
    listed = list(lines)
    if listed:
        raise OptionError(
            "\n  - ".join([f"{heading}:", *listed]),
            expected="names, without dash, that PETSc reads here; None, number, text, or several",
            remedy="the nearest name, or -help on the command line, which lists what PETSc reads",
        )
