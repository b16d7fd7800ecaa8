"""Scoped PETSc options: precedence, restoring, values, unread and misspelt names."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from fractions import Fraction
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from petsc4py import PETSc

from daeosens.errors import OptionError
from daeosens.petsc.option_names import is_known, is_late, known_options, split_prefix
from daeosens.petsc.options import (
    Scope,
    check_command_line,
    refused_value,
    scoped_options,
    unused_command_line,
    validate_names,
)


class CommandLine:
    """Puts options into the database as PETSc does at start-up, and takes them out again."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, text: str) -> None:
        self.names += [word for word in text.split() if word.startswith("-")]
        PETSc.Options().insertString(text)


@pytest.fixture
def command_line() -> Iterator[CommandLine]:
    line = CommandLine()
    yield line
    for name in line.names:
        PETSc.Options().delValue(name)


def database() -> dict[str, str | None]:
    return PETSc.Options().getAll()


def used(name: str) -> bool:
    return PETSc.Options().used(name)


def read(name: str) -> bool:
    """Ask for an option as PETSc's objects do."""
    return PETSc.Options().hasName(name)


def raised(scope: Scope, **kwargs: bool) -> str:
    with pytest.raises(OptionError) as caught:
        scope.check_used(**kwargs)
    return str(caught.value)


# ---- PETSc's behaviour that the module stands on -------------------------------------------------


def test_petsc_marks_an_option_as_used_when_asked_and_forgets_when_it_is_set_anew():
    options = PETSc.Options()
    options.setValue("zoo_a", 1)
    assert "zoo_a" in options.getAll()
    assert not options.used("zoo_a")
    assert options.getInt("zoo_a") == 1
    assert options.used("ZOO_A")
    options.setValue("zoo_a", 2)
    assert options.used("zoo_a")
    options.delValue("Zoo_a")
    options.setValue("zoo_a", 3)
    assert not options.used("zoo_a")
    options.delValue("zoo_a")


# ---- precedence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "wins"),
    [
        ({"defaults": 1}, "1"),
        ({"defaults": 1, "config": 2}, "2"),
        ({"defaults": 1, "code": 3}, "3"),
        ({"defaults": 1, "config": 2, "code": 3}, "3"),
        ({"config": 2, "code": 3}, "3"),
    ],
)
def test_later_layer_wins(layers: dict[str, int], wins: str):
    with scoped_options(**{layer: {"snes_max_it": value} for layer, value in layers.items()}):
        assert database()["snes_max_it"] == wins


def test_layers_are_merged_ignoring_case():
    with scoped_options(defaults={"snes_rtol": 1, "ksp_rtol": 2}, code={"SNES_RTOL": 3}):
        assert database() == {"ksp_rtol": "2", "snes_rtol": "3"}


@pytest.mark.parametrize("written", ["snes_max_it", "SNES_max_it"])
def test_command_line_wins_over_every_layer_and_stays(command_line: CommandLine, written: str):
    command_line(f"-{written} 9")
    three = {"snes_max_it": 1}
    with scoped_options(defaults=three, config=three, code=three):
        assert database() == {written: "9"}
        assert not used("snes_max_it")
        snes = PETSc.SNES().create()
        snes.setFromOptions()
        assert snes.getTolerances()[3] == 9
    assert database() == {written: "9"}
    assert used("snes_max_it")


def test_what_the_user_sets_inside_a_block_is_left_alone_and_wins_over_inner_scopes(
    command_line: CommandLine,
):
    with scoped_options(code={"ksp_rtol": 1}):
        command_line("-snes_rtol 7")
        with scoped_options(code={"snes_rtol": 1}):
            assert database()["snes_rtol"] == "7"
    assert database() == {"snes_rtol": "7"}


@pytest.mark.parametrize("single", ["", "-snes_rtol 7"])
def test_a_drivers_double_dash_flag_is_no_petsc_option(command_line: CommandLine, single: str):
    command_line(f"--snes_rtol 5 {single}")
    with scoped_options(code={"snes_rtol": 1}):
        assert PETSc.Options().getString("snes_rtol") == ("7" if single else "1")
    assert read("snes_rtol") == bool(single)
    assert read("--snes_rtol")


def test_options_reach_the_objects():
    with scoped_options(defaults={"snes_rtol": 1e-10}, code={"snes_max_it": 5}) as scope:
        snes = PETSc.SNES().create()
        snes.setFromOptions()
        scope.check_used(final=True)
    assert snes.getTolerances()[0] == 1e-10
    assert snes.getTolerances()[3] == 5


def test_prefix_keeps_the_solvers_of_one_program_apart():
    solvers = [PETSc.TS().create(), PETSc.TS().create()]
    with ExitStack() as stack:
        for ts, prefix, steps in zip(solvers, ["slow_", "Fast_"], [11, 22], strict=True):
            options = {"ts_max_steps": steps, "ts_view": None}
            scope = stack.enter_context(scoped_options(code=options, prefix=prefix))
            ts.setOptionsPrefix(prefix)
            assert f"{prefix}ts_max_steps = {steps} (code): PETSc has it" in raised(scope)
            ts.setFromOptions()
            scope.check_used()
            assert f"{prefix}ts_view" in raised(scope, final=True)
    assert [ts.getMaxSteps() for ts in solvers] == [11, 22]
    assert database() == {}


def test_prefix_ignores_case_and_is_part_of_what_is_reported(command_line: CommandLine):
    command_line("-slow_ts_max_steps 3")
    with scoped_options(code={"ts_max_steps": 5, "ts_rtoll": 1}, prefix="Slow_") as scope:
        assert database() == {"slow_ts_max_steps": "3", "slow_ts_rtoll": "1"}
        assert 'Slow_ts_rtoll = 1 (code): did you mean "Slow_ts_rtol"?' in raised(scope)


# ---- restoring -----------------------------------------------------------------------------------


@pytest.mark.parametrize("outer_read", [False, True])
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_database_is_as_before_after_nested_scopes(
    command_line: CommandLine, outer_read: bool, error: type[BaseException] | None
):
    command_line("-snes_stol 4 -log_foo")
    with scoped_options(config={"snes_rtol": 1, "snes_atol": 2, "snes_monitor": None}):
        before = database()
        if outer_read:
            read("snes_rtol")
        with ExitStack() as stack:
            if error:
                stack.enter_context(pytest.raises(error))
            inner = stack.enter_context(
                scoped_options(code={"snes_rtol": 5, "ksp_rtol": 6, "snes_stol": 7})
            )
            assert database() == before | {"snes_rtol": "5", "ksp_rtol": "6"}
            assert "snes_rtol = 5 (code)" in raised(inner)
            read("snes_rtol")
            if error:
                raise error
        assert database() == before
        assert used("snes_rtol") == outer_read
        assert not used("snes_atol")
    assert database() == {"log_foo": None, "snes_stol": "4"}
    assert not used("log_foo")


@pytest.mark.parametrize(
    ("outer", "inner", "wins"),
    [
        ("defaults", "defaults", "2"),
        ("defaults", "config", "2"),
        ("config", "defaults", "1"),
        ("config", "config", "2"),
        ("config", "code", "2"),
        ("code", "config", "1"),
        ("code", "code", "2"),
    ],
)
def test_inner_scope_wins_unless_the_outer_layer_is_higher(outer: str, inner: str, wins: str):
    with scoped_options(**{outer: {"snes_rtol": 1}}):
        with scoped_options(**{inner: {"snes_rtol": 2}}):
            assert database() == {"snes_rtol": wins}
        assert database() == {"snes_rtol": "1"}
    assert database() == {}


def test_three_scopes_give_back_one_another():
    with scoped_options(code={"snes_rtol": 1}):
        with scoped_options(code={"snes_rtol": 2}):
            with scoped_options(code={"snes_rtol": 3}):
                pass
            assert database() == {"snes_rtol": "2"}
        assert database() == {"snes_rtol": "1"}


def test_nothing_is_inserted_if_anything_is_wrong():
    with pytest.raises(OptionError, match="not a value"):
        scoped_options(code={"snes_rtol": 1, "snes_atol": {}}).__enter__()
    assert database() == {}


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, None),
        ("", None),
        (False, "false"),
        (np.bool_(True), "true"),
        (np.bool_(False), "false"),
        (-3, "-3"),
        (np.int32(7), "7"),
        (1e-10, "1e-10"),
        (-0.5, "-0.5"),
        (np.float64(0.1), "0.1"),
        (np.float32(0.5), "0.5"),
        (Fraction(1, 4), "0.25"),
        (float("inf"), "inf"),
        ("gmres", "gmres"),
        ("ascii:a file.txt", "ascii:a file.txt"),
        ([1, 2.5], "1,2.5"),
        ((True, "a"), "true,a"),
        (range(3), "0,1,2"),
        (np.array([1.0, 2.0]), "1.0,2.0"),
        (np.array(3), "3"),
    ],
)
def test_values_become_text(value: object, text: str | None):
    with scoped_options(code={"forms": value}):
        if text is None:
            assert database() == {"forms": None}
        assert PETSc.Options().getString("forms") == (text or "")


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        1j,
        b"x",
        {"a": 1},
        object,
        [],
        [1, None],
        [[1], [2]],
        [float("nan")],
        np.eye(2),
        np.array([]),
    ],
)
def test_values_that_petsc_cannot_take_are_refused(value: object):
    with pytest.raises(OptionError, match=r"snes_rtol = .*\(config\): not a value"):
        scoped_options(config={"snes_rtol": value}).__enter__()
    with pytest.raises(OptionError, match=r"snes_rtol = .*\(run\.toml\): not a value"):
        validate_names({"snes_rtol": value}, "run.toml")


@pytest.mark.parametrize("text", ["inf", "-inf", "1e-10"])
def test_petsc_reads_the_numbers_we_write(text: str):
    with scoped_options(code={"forms": float(text)}):
        assert PETSc.Options().getReal("forms") == float(text)


# ---- names ---------------------------------------------------------------------------------------


def test_names_are_words():
    for check in (
        lambda: validate_names({1: 2}, "code"),
        lambda: scoped_options(code={1: 2}).__enter__(),
    ):
        with pytest.raises(OptionError, match=r"1 \(code\): a name is a str, such as 'snes_rtol'"):
            check()


@pytest.mark.parametrize("name", ["-ts_rtol", "--ts_rtol", "ts_rtol ", "ts rtol"])
def test_names_with_dash_or_spaces_are_refused(name: str):
    expected = f'"{name}" \\(config\\): write "ts_rtol", without dash or spaces'
    with pytest.raises(OptionError, match=expected):
        validate_names({name: 1}, "config")
    with pytest.raises(OptionError, match=expected):
        scoped_options(config={name: 1}).__enter__()


def test_impossible_names_without_a_similar_one_and_prefixes_are_refused():
    with pytest.raises(OptionError, match=r'"-qqqqzz" \(code\): write "qqqqzz"'):
        scoped_options(code={"-qqqqzz": 1}).__enter__()
    with pytest.raises(OptionError, match=r'"-slow_" \(prefix\)'):
        scoped_options(code={"ts_rtol": 1}, prefix="-slow_").__enter__()


@pytest.mark.parametrize(
    "name",
    [
        "ts_rtol",
        "TS_RTOL",
        "ts_view",
        "tao_ls_OWArmijo_sigma",
        "snes_ksp_ew_alpha",
        "log_view",
        "sub_pc_type",
        "mg_levels_ksp_max_it",
        "mg_levels_1_pc_type",
        "mg_coarse_sub_pc_factor_shift_type",
        "fieldsplit_velocity_ksp_type",
        "fieldsplit_0_pc_hypre_type",
        "fieldsplit_1_inner_ksp_rtol",
        "npc_snes_type",
        "fas_levels_snes_max_it",
        "pc_gamg_esteig_ksp_type",
        "ksp_ksp_type",
        "ksp_pc_type",
        "tao_lmvm_mat_lmvm_hist_size",
        "tao_nls_ksp_type",
        "pc_hypre_boomeramg_max_iter",
        "mat_mumps_icntl_14",
        "mat_superlu_dist_equil",
    ],
)
def test_known_names_pass(name: str):
    assert is_known(name)
    validate_names({name: 1}, "config")
    validate_names({f"slow_{name}": 1}, "config", prefixes=["slow_"])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ts_rtoll", "ts_rtol"),
        ("TS_Rtoll", "ts_rtol"),
        ("snes_max_iter", "snes_max_it"),
        ("pc_tpye", "pc_type"),
        ("tao_gatoll", "tao_gatol"),
        ("sub_pc_tpye", "sub_pc_type"),
        ("mg_levels_1_ksp_tpye", "mg_levels_ksp_type"),
        ("SUB_pc_tpye", "sub_pc_type"),
        ("slow_ts_rtoll", "slow_ts_rtol"),
        ("slow_sub_pc_tpye", "slow_sub_pc_type"),
    ],
)
def test_misspelt_names_are_refused_with_the_nearest(name: str, meant: str):
    with pytest.raises(OptionError) as caught:
        validate_names({name: 1}, "run.toml", prefixes=["slow_"])
    assert f'run.toml: PETSc options:\n  - "{name}": did you mean "{meant}"?' in str(caught.value)


def test_all_wrong_names_and_values_are_reported_together():
    with pytest.raises(OptionError) as caught:
        validate_names({"ts_rtoll": 1, "-ts_atol": 1, "ts_rtol": [], "qqqqqqqq": 1}, "config")
    message = str(caught.value)
    assert '"ts_rtoll": did you mean "ts_rtol"?' in message
    assert '"-ts_atol" (config): write "ts_atol"' in message
    assert "ts_rtol = [] (config): not a value" in message
    assert '"qqqqqqqq": PETSc has none of a similar name' in message
    assert message.count("\n  - ") == 4
    assert "expected: " in message
    assert "try: " in message


def test_user_prefixes_are_the_longest_that_fit():
    assert split_prefix("a_b_ts_rtol", ["a_", "a_b_", "b_"]) == ("a_b_", "ts_rtol")
    assert split_prefix("A_ts_rtol", ["a_"]) == ("A_", "ts_rtol")
    assert split_prefix("ts_rtol", ["a_"]) == ("", "ts_rtol")
    with pytest.raises(OptionError, match='"slow_ts_rtol"'):
        validate_names({"slow_ts_rtol": 1}, "config")


def test_an_inner_solvers_name_needs_a_whole_option_behind_the_prefix():
    assert not is_known("sub_type")
    assert not is_known("sub_")
    assert not is_known("mg_levels_log")


def test_list_of_names_is_sorted_text_without_doubles():
    text = resources.files("daeosens.petsc").joinpath("options.txt").read_text("ascii")
    names = text.splitlines()
    assert names == sorted(set(names))
    assert len(names) > 1500
    assert len(known_options()) == len(names)
    assert not any(is_late(name) for name in ("ts_rtol", "snes_rtol", "ksp_rtol", "tao_gatol"))


HELP = """
import sys
from petsc4py import PETSc
PETSc.Options()["help"] = None
for make, types in ((PETSc.TS, ("rk", "cn", "beuler")), (PETSc.TAO, ("lmvm", "bncg", "blmvm"))):
    for kind in types:
        solver = make().create()
        solver.setOptionsPrefix("zoo_")
        solver.setType(kind)
        solver.setFromOptions()
"""


def test_list_of_names_has_all_that_this_petsc_prints_for_our_methods():
    run = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True, timeout=240
    )
    lines = (line.split() for line in run.stdout.splitlines() if line.startswith("  -zoo_"))
    names = {line[0].removeprefix("-zoo_").rstrip(":") for line in lines}
    assert len(names) > 150
    assert {name for name in names if not is_known(name)} == set()


# ---- unread options ------------------------------------------------------------------------------


def test_unread_options_of_config_and_code_are_refused_by_name_value_origin_and_nearest():
    options = {
        "defaults": {"snes_rtoll": 1},
        "config": {"snes_atoll": 2},
        "code": {"snes_mf": None},
    }
    with scoped_options(**options) as scope:
        message = raised(scope)
        assert message.startswith("PETSc options that nothing reads:\n  - ")
        assert 'snes_atoll = 2 (config): did you mean "snes_atol"?' in message
        assert "snes_mf (code): PETSc has it, but not for the methods and types chosen" in message
        assert "rtoll" not in message
        read("snes_mf")
        assert "snes_mf" not in raised(scope)
        read("snes_atoll")
        scope.check_used(final=True)


def test_an_option_of_another_method_is_refused():
    with scoped_options(code={"ts_theta_theta": 0.7}) as scope:
        ts = PETSc.TS().create()
        ts.setType("rk")
        ts.setFromOptions()
        assert "ts_theta_theta = 0.7 (code): PETSc has it, but not" in raised(scope)
        ts.setType("theta")
        ts.setFromOptions()
        scope.check_used()


@pytest.mark.parametrize(
    "name",
    [
        "ts_view",
        "ts_view_solution",
        "sub_pc_type",
        "mg_levels_ksp_type",
        "fieldsplit_0_pc_type",
        "pc_factor_shift_type",
        "mat_mumps_icntl_14",
        "mat_view",
        "snes_test_local_min",
        "tao_test_gradient",
        "ts_adjoint_view_solution",
    ],
)
def test_options_that_petsc_reads_late_may_wait_if_spelt_correctly(
    name: str, command_line: CommandLine
):
    assert is_late(name)
    with scoped_options(config={name: 1}, prefix="slow_") as scope:
        scope.check_used()
        assert f"slow_{name} = 1 (config)" in raised(scope, final=True)
        read(f"slow_{name}")
        scope.check_used(final=True)
    command_line(f"-{name} 1 -slow_{name} 1")
    assert unused_command_line(prefixes=["slow_"]) == []
    assert unused_command_line() == [f"slow_{name}"]
    assert unused_command_line(final=True) == sorted([name, f"slow_{name}"])


@pytest.mark.parametrize("name", ["sub_pc_tpye", "mg_levels_rtol", "ts_viewer", "pc_fctor_fill"])
def test_misspelt_late_options_may_not_wait(name: str, command_line: CommandLine):
    with scoped_options(config={name: 1}) as scope:
        assert f"{name} = 1" in raised(scope)
    command_line(f"-{name} 1")
    assert unused_command_line() == [name]


LATE = """
from petsc4py import PETSc
from daeosens.errors import OptionError
from daeosens.petsc.options import scoped_options

matrix = PETSc.Mat().createAIJ((2, 2), nnz=1)
matrix[0, 0] = matrix[1, 1] = -1.0
matrix.assemble()
state = matrix.createVecLeft()
state.set(1.0)

def rhs(ts, t, u, out):
    u.copy(out)
    out.scale(-1.0)

def fill(ts, t, u, jacobian, preconditioner):
    preconditioner[0, 0] = preconditioner[1, 1] = -1.0
    preconditioner.assemble()

options = {"ts_view": ":/dev/null", "sub_pc_type": "jacobi", "sub_ksp_type": "gmres"}
with scoped_options(code=options, defaults={"pc_type": "bjacobi"}) as scope:
    ts = PETSc.TS().create()
    ts.setType("cn")
    ts.setRHSFunction(rhs, state.duplicate())
    ts.setRHSJacobian(fill, matrix, matrix)
    ts.setTimeStep(0.1)
    ts.setMaxSteps(1)
    ts.setExactFinalTime(PETSc.TS.ExactFinalTime.STEPOVER)
    ts.setFromOptions()
    ts.setSolution(state)
    ts.setUp()
    scope.check_used()
    try:
        scope.check_used(final=True)
    except OptionError as error:
        print(str(error).count("(code)"), "unread")
    ts.solve(state)
    scope.check_used(final=True)
    print("all read")
"""


@pytest.mark.slow
def test_late_options_are_read_in_the_solve():
    # a process of its own: after a view that failed, PETSc 3.26 reads no _view option any more
    run = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, check=True, timeout=240
    )
    assert run.stdout.splitlines() == ["3 unread", "all read"]


def test_an_overruled_option_is_used_if_the_one_that_overrules_it_is(command_line: CommandLine):
    command_line("-snes_rtol 1")
    with (
        scoped_options(code={"snes_atol": 1}),
        scoped_options(config={"snes_rtol": 2, "snes_atol": 3}) as scope,
    ):
        message = raised(scope)
        assert "snes_rtol = 2" in message
        assert "snes_atol = 3" in message
        read("snes_rtol")
        read("snes_atol")
        scope.check_used(final=True)


# ---- the command line ----------------------------------------------------------------------------


def test_unread_command_line_options_are_listed(command_line: CommandLine):
    command_line("-ts_rtoll 3 -snes_rtol 1 -options_left no --config a.toml -Ts_Foo")
    with scoped_options(code={"snes_atol": 1}):
        assert unused_command_line() == ["snes_rtol", "ts_foo", "ts_rtoll"]
    read("snes_rtol")
    assert unused_command_line() == ["ts_foo", "ts_rtoll"]
    with pytest.raises(OptionError) as caught:
        check_command_line()
    message = str(caught.value)
    assert message.startswith("command-line options that nothing reads:\n  - -ts_foo: ")
    assert '\n  - -ts_rtoll: did you mean "ts_rtol"?\n' in message
    read("ts_foo")
    read("ts_rtoll")
    check_command_line(final=True)


def test_command_line_options_with_the_programs_prefixes(command_line: CommandLine):
    command_line("-slow_ts_view -slow_ts_rtoll 1")
    with pytest.raises(OptionError, match='-slow_ts_rtoll: did you mean "slow_ts_rtol"') as caught:
        check_command_line(prefixes=["slow_"])
    assert "ts_view" not in str(caught.value)
    with pytest.raises(OptionError, match="-slow_ts_view: PETSc has it"):
        check_command_line(prefixes=["slow_"], final=True)


PROGRAM = """
import sys
import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc
from daeosens.petsc.options import scoped_options, unused_command_line
with scoped_options(code={"snes_max_it": 3, "snes_rtol": 0.5}):
    snes = PETSc.SNES().create()
    snes.setFromOptions()
print(unused_command_line(), unused_command_line(final=True), snes.getTolerances()[::3])
"""


@pytest.mark.slow
def test_a_real_command_line_and_petsc_options_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("PETSC_OPTIONS", "-snes_max_it 8")
    line = "run.toml --out x -snes_rtoll 1 -sub_pc_type lu -malloc_dump -citations /dev/null -nox"
    run = subprocess.run(
        [sys.executable, program, *line.split(), "-options_left", "no"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert run.stdout.splitlines()[0] == "['snes_rtoll'] ['snes_rtoll', 'sub_pc_type'] (0.5, 8)"


# ---- values that PETSc refuses -------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("options", "named", "message"),
    [
        ({"snes_max_it": "many"}, "snes_max_it = many", "Input string many has no integer value"),
        ({"snes_rtol": 2.0, "snes_max_it": 9}, "snes_rtol = 2.0", "Relative tolerance 2. must be"),
        ({"SNES_rtol": -0.5}, "snes_rtol = -0.5", "Relative tolerance"),
        ({"ksp_type": "nope"}, "ksp_type = nope", "Unable to find requested KSP type nope"),
        ({"snes_monitor": "word"}, "snes_monitor = word", "Unsupported viewer word"),
        (
            {"snes_linesearch_type": "nope", "ksp_type": "gmres"},
            "snes_linesearch_type = nope",
            "Unable to find",
        ),
        (
            {"ksp_pc_side": "above", "ksp_type": "gmres"},
            "ksp_pc_side = above",
            'Unknown option "above" for -ksp_pc_side',
        ),
        (
            {"ksp_type": "gmres", "ksp_gmres_restart": 0},
            "ksp_gmres_restart = 0 or ksp_type = gmres",
            "Restart must be positive",
        ),
    ],
)
def test_a_refused_value_is_named_with_its_option(comm, options, named, message):
    value = ""
    try:
        with scoped_options(defaults={"snes_atol": 0.5}, code=options):
            PETSc.SNES().create(comm).setFromOptions()
    except OptionError as error:
        value = str(error)
    assert f"PETSc option {named}: {message}" in value
    assert "\n  expected: a value that PETSc takes here\n  try: another value" in value
    assert comm.allgather(value) == [value] * comm.size
    assert database() == {}


def test_a_value_of_the_command_line_is_named_too(command_line: CommandLine):
    command_line("-slow_ksp_type nope")
    snes = PETSc.SNES().create()
    snes.setOptionsPrefix("slow_")
    with pytest.raises(OptionError, match="PETSc option slow_ksp_type = nope: "), scoped_options():
        snes.setFromOptions()


def test_other_errors_of_petsc_are_no_refusals():
    singular = PETSc.Mat().createDense((1, 1), array=[0.0], comm=PETSc.COMM_SELF)
    solver = PETSc.KSP().create(PETSc.COMM_SELF)
    solver.setOperators(singular)
    solver.getPC().setType("lu")
    with pytest.raises(PETSc.Error) as caught, scoped_options(code={"ksp_max_it": 0}):
        solver.setUp()
    assert refused_value(caught.value) is None
    with pytest.raises(PETSc.Error), scoped_options():  # of the library's own defaults
        PETSc.SNES().create().setType("nope")


# ---- ranks ---------------------------------------------------------------------------------------


@pytest.mark.mpi
def test_every_rank_has_the_same_options_and_errors(comm: MPI.Intracomm):
    with scoped_options(config={"ts_rtoll": 1, "snes_rtol": 1e-3}, code={"ksp_rtol": 0.1}) as scope:
        snes = PETSc.SNES().create(comm)
        snes.setFromOptions()
        values = (database(), raised(scope), unused_command_line())
    assert comm.allgather(values) == [values] * comm.size


def test_new_name_that_petsc_gives_an_old_option_does_not_outlive_the_block():
    ts = PETSc.TS().create(comm=PETSc.COMM_SELF)
    with scoped_options(code={"ts_dt": 0.5}):
        ts.setFromOptions()
        assert "ts_time_step" in PETSc.Options().getAll()
    assert PETSc.Options().getAll().keys() & {"ts_dt", "ts_time_step"} == set()
    ts.destroy()


def test_a_misspelt_option_leads_to_the_field_that_stands_in_its_place():
    with pytest.raises(OptionError, match=r'"ts_dtt": did you mean Stepping\(..., dt=...\)\?'):
        validate_names({"ts_dtt": 0.1}, "options")
    with pytest.raises(OptionError, match=r"did you mean solve\(..., t_eval=...\)\?"):
        validate_names({"ts_eval_time": 0.1}, "options")
