"""Configuration files: what is read, and that every problem is reported, at once and precisely."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from daeosens.errors import InputError, together
from daeosens.io.config.read import config_help, read_config
from daeosens.io.config.schema import between, existing_file, increasing, length, noun, positive


@dataclass(frozen=True)
class Stepping:
    t_span: tuple[float, float]
    method: Literal["cn", "beuler", 4] = "cn"
    dt: Annotated[float, positive(), "time step [years]"] | None = None
    options: dict[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        if self.t_span[0] >= self.t_span[1]:
            raise InputError("t_span is reversed", expected="start < end", remedy="swap them")


@dataclass(frozen=True)
class Rate:
    start: float
    free: bool = True


@dataclass(frozen=True)
class Config:
    stepping: Stepping
    steps: Annotated[int, between(1, 100), "number of steps"]
    data: Annotated[Path, existing_file()] | None = None
    name: Annotated[str, length(1)] = "run"
    times: Annotated[tuple[float, ...], increasing(), length(2, 4)] = (0.0, 1.0)
    rates: dict[str, Rate] = field(default_factory=dict[str, Rate])
    points: tuple[Rate, ...] = ()
    scale: float | Literal["auto"] = "auto"
    count: list[int] = field(default_factory=list[int])
    least: Annotated[float, between(most=3.0)] = 0.0
    fraction: Annotated[float, between(least=-1.0)] = 0.0


GOOD = "steps = 3\n"
SPAN = "[stepping]\nt_span = [0, 20]\n"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], Config]:
    def read_text(text: str) -> Config:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        return read_config(path, Config)

    return read_text


def problems(read: Callable[[str], Config], text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text)
    return [line.removeprefix("  - ") for line in str(caught.value).splitlines()[1:]]


def test_every_kind_of_value_is_read(read, tmp_path):
    (tmp_path / "pelts.csv").touch()
    config = read(
        'driver = "any"\nsteps = 3\ndata = "pelts.csv"\ntimes = [0, 1, 2.5]\n'
        "scale = 2\ncount = [1]\n"
        '[stepping]\nt_span = [0, 20]\nmethod = 4\ndt = 1\n[stepping.options]\nts_view = ""\n'
        "[rates.a]\nstart = 1\n[[points]]\nstart = 2\nfree = false\n"
    )
    assert config == Config(
        Stepping((0.0, 20.0), 4, 1.0, {"ts_view": ""}),
        steps=3,
        data=tmp_path / "pelts.csv",
        times=(0.0, 1.0, 2.5),
        rates={"a": Rate(1.0)},
        points=(Rate(2.0, False),),
        scale=2.0,
        count=[1],
    )
    assert isinstance(config.stepping.dt, float)


def test_defaults_fill_what_is_left_out(read):
    assert read(GOOD + SPAN) == Config(Stepping((0.0, 20.0)), 3)


def test_all_problems_come_at_once(read):
    complaints = problems(
        read,
        'steps = true\nnane = "x"\nscale = "car"\n'
        '[stepping]\nt_spam = [0, 1]\ndt = -1\nmethod = "cm"',
    )
    assert complaints == [
        'stepping.method = "cm": expected one of "cn", "beuler", 4; did you mean "cn"?',
        "stepping.dt = -1: expected a number > 0",
        'stepping.t_spam: unknown key; did you mean "t_span"?',
        "steps = true: expected an integer in [1, 100]",
        'scale = "car": expected "auto"',
        'nane: unknown key; did you mean "name"?',
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("zzz = 1", "zzz: unknown key; known keys: stepping, steps,"),
        ('name = ""', 'name = "": expected a string of length >= 1; the length is 0'),
        ("name = 3", 'name = 3: expected a string of length >= 1; write "3"'),
        ("least = nan", "least = nan: expected a number <= 3; every number must be finite"),
        ("least = 4", "least = 4: expected a number <= 3"),
        ('least = "2.5"', 'least = "2.5": expected a number <= 3; write 2.5 without quotes'),
        ('least = "abc"', 'least = "abc": expected a number <= 3'),
        ("least = true", "least = true: expected a number <= 3"),
        ("least = 2000-01-01", "least = 2000-01-01: expected a number <= 3"),
        ("fraction = -2", "fraction = -2: expected a number >= -1"),
        (
            "times = 1",
            "times = 1: expected an array strictly increasing and of length 2 to 4, each",
        ),
        (
            "times = [0]",
            "times = [0]: expected an array strictly increasing and of length 2 to 4, each",
        ),
        ("times = [0, 1, 1]", "; entry 2 is 1, the one before it 1"),
        ('times = [0, "x"]', 'times[1] = "x": expected a number'),
        ("count = [1.0]", "count[0] = 1.0: expected an integer; write 1"),
        ("count = [1.5]", "count[0] = 1.5: expected an integer"),
        ("least = 1" + "0" * 400, "000...: expected a number <= 3; every number must be finite"),
        ("scale = inf", "scale = inf: expected a number; every number must be finite"),
        ("scale = [1]", 'scale = [1]: expected a number or "auto"'),
        ("scale = {a = 1}", 'scale = {a = 1}: expected a number or "auto"'),
        (
            "rates = 1",
            "rates = 1: expected a table, each value a table; write it as a section",
        ),
        ("rates = {a = 1}", "rates.a = 1: expected a table; write it as a section [rates.a]"),
        ("rates = {a = {}}", "rates.a.start: missing; expected a number; add start = ..."),
        (
            "points = [{free = 0, start = 1}]",
            "points[0].free = 0: expected true or false; write true",
        ),
        ('data = "pelt.csv"', "pelts.csv"),
        ("data = 1", 'data = 1: expected a path of an existing file; write "1"'),
    ],
)
def test_each_problem_says_key_value_expectation_and_remedy(read, tmp_path, line, expected):
    (tmp_path / "pelts.csv").touch()
    complaints = problems(read, f"{GOOD}{line}\n{SPAN}")
    assert len(complaints) == 1
    assert expected in complaints[0]


def test_missing_keys_and_sections_are_named(read):
    assert problems(read, "") == [
        "stepping: missing; expected a table; add a section [stepping]",
        "steps: missing; expected an integer in [1, 100]; add steps = ...",
    ]


def test_array_of_the_wrong_length_names_the_length(read):
    assert problems(read, GOOD + "[stepping]\nt_span = [0, 1, 2]") == [
        "stepping.t_span = [0, 1, 2]: expected an array [number, number]; the length is 3"
    ]


@dataclass(frozen=True)
class Strict:
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        raise together(["low = 2 is above high", "the rest too"], heading="Strict")


@dataclass(frozen=True)
class Outer:
    inner: Strict


def test_several_complaints_of_a_section_get_their_dotted_keys(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("[inner]\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_config(path, Outer)
    assert str(caught.value).splitlines() == [
        f"{path}: 2 problems",
        "  - inner.low = 2 is above high",
        "  - inner: the rest too",
    ]


def test_conditions_between_keys_carry_the_section(read):
    assert problems(read, GOOD + "[stepping]\nt_span = [1, 0]")[0] == (
        "stepping.t_span is reversed"
    )


def test_long_values_are_cut(read):
    complaints = problems(read, f"{GOOD}name = {list(range(99))}\n{SPAN}")
    assert complaints[0].startswith("name = [0, 1, 2,")
    assert "...: expected" in complaints[0]


def test_syntax_error_names_the_line(read):
    with pytest.raises(InputError, match=r"config.toml: not TOML: .*line 2"):
        read("steps = 3\nname = run\n")


def test_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "lynx_hare.toml").touch()
    with pytest.raises(InputError, match=r'lynxhare.toml: no such file(.|\n)*"lynx_hare.toml"'):
        read_config(tmp_path / "lynxhare.toml", Config)


@pytest.mark.parametrize(
    ("path", "remedy"),
    [("nowhere/a.toml", "there is no folder"), (".", "is a folder"), ("zzz", "holds a.toml")],
)
def test_missing_file_describes_the_place(tmp_path, path, remedy):
    (tmp_path / "a.toml").touch()
    with pytest.raises(InputError, match=remedy):
        read_config(tmp_path / path, Config)


def test_empty_folder_is_told(tmp_path):
    with pytest.raises(InputError, match="holds no files"):
        read_config(tmp_path / "a.toml", Config)


def test_unreadable_file_is_told(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "a.toml"
    path.touch()
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        read_config(path, Config)


def test_help_lists_every_key_with_default_and_text():
    lines = config_help(Config).splitlines()
    assert "stepping: a table" in lines
    assert "stepping.dt: a number > 0 (may be left out); time step [years]" in lines
    assert 'stepping.method: one of "cn", "beuler", 4 (default "cn")' in lines
    assert "steps: an integer in [1, 100]; number of steps" in lines
    assert "rates: a table, each value a table (may be left out)" in lines
    assert "points: an array, each entry a table (default [])" in lines
    assert "points[].start: a number" in lines


def test_fixed_length_is_said_in_words():
    assert noun(Annotated[tuple[int, ...], length(3, 3)]) == (
        "an array of length 3, each entry an integer"
    )
    assert noun(Annotated[tuple[int, ...], length(3, 4)]) == (
        "an array of length 3 to 4, each entry an integer"
    )
