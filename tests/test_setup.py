"""The scripts of the newcomer: what scripts/setup decides, refuses and repairs, without a build.

The functions of scripts/lib are called in a bash of their own, with programs and folders made up.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PREAMBLE = """
set -euo pipefail
here={scripts}
for part in paths progress system petsc; do . "$here/lib/$part.bash"; done
"""


@pytest.fixture
def bash(tmp_path):
    """Run a piece of bash after scripts/lib was read, with an empty cache."""

    def run(script, **environment):
        preamble = PREAMBLE.format(scripts=ROOT / "scripts")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PETSC", "DAEOSENS"))}
        return subprocess.run(
            ["bash", "-c", preamble + script],
            env={**inherited, "DAEOSENS_CACHE": str(tmp_path / "cache"), **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


@pytest.fixture
def without(tmp_path):
    """Make a PATH with all programs but the named ones, where ``id`` says that we are not root."""

    def make(*names):
        folder = tmp_path / "bin"
        folder.mkdir()
        for source in os.environ["PATH"].split(os.pathsep):
            for program in Path(source).iterdir() if Path(source).is_dir() else ():
                link = folder / program.name
                if program.name not in names and not link.is_symlink():
                    link.symlink_to(program)
        (folder / "id").unlink()
        (folder / "id").write_text("#!/bin/sh\necho 1000\n")
        (folder / "id").chmod(0o755)
        return str(folder)

    return make


@pytest.fixture
def petsc_dir(tmp_path):
    """Make a folder that looks like an installed PETSC_DIR."""

    def make(version="3.26.1", defines=""):
        include = tmp_path / "petsc" / "include"
        include.mkdir(parents=True)
        major, minor, _ = version.split(".")
        (include / "petscversion.h").write_text(
            f"#define PETSC_VERSION_MAJOR    {major}\n#define PETSC_VERSION_MINOR    {minor}\n"
        )
        (include / "petscconf.h").write_text(defines)
        return str(include.parent)

    return make


def test_help_names_the_settings():
    told = subprocess.run(
        [ROOT / "scripts" / "setup", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for name in ("DAEOSENS_CACHE", "DAEOSENS_VENV", "DAEOSENS_PYTHON", "PETSC_DIR", "PETSc 3.26"):
        assert name in told


def test_unknown_argument_is_refused():
    done = subprocess.run([ROOT / "scripts" / "setup", "--frce"], capture_output=True, check=False)
    assert done.returncode == 2


def test_without_root_the_missing_packages_and_their_command_are_printed(bash, without):
    path = without("mpicc", "mpiexec", "make", "sudo")
    done = bash("install_missing /dev/null yes", PATH=path)
    assert done.returncode == 1
    assert "sudo apt-get install --no-install-recommends" in done.stderr
    for package in ("libopenmpi-dev", "openmpi-bin", "build-essential"):
        assert package in done.stderr
    assert "mpicc" in done.stdout


def test_where_there_is_no_apt_the_packages_are_named(bash, without):
    done = bash("install_missing /dev/null yes", PATH=without("mpicc", "apt-get"))
    assert done.returncode == 1
    assert "no Debian or Ubuntu" in done.stderr
    assert "libopenmpi-dev" in done.stderr


def test_an_existing_petsc_needs_no_mpi_compiler(bash, without):
    assert bash("install_missing /dev/null no", PATH=without("mpicc", "make")).returncode == 0


def test_old_python_is_passed_over(bash, tmp_path):
    old = tmp_path / "oldpython"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    text = bash("find_python", DAEOSENS_PYTHON=str(old)).stdout.strip()
    assert text != str(old)


@pytest.mark.parametrize(
    ("version", "defines", "objection"),
    [
        ("3.26.0", "", ""),
        ("3.25.4", "", "it is PETSc 3.25, not 3.26"),
        ("3.26.1", "#define PETSC_USE_COMPLEX 1\n", "its numbers are not real doubles"),
        ("3.26.1", "#define PETSC_USE_REAL_SINGLE 1\n", "its numbers are not real doubles"),
    ],
)
def test_petsc_dir_is_judged_by_version_and_numbers(bash, petsc_dir, version, defines, objection):
    done = bash("objection_to_petsc_dir", PETSC_DIR=petsc_dir(version, defines))
    assert (done.returncode, done.stdout.strip()) == (0, objection)


def test_petsc_dir_without_petsc_is_refused(bash, tmp_path):
    assert "no PETSc is there" in bash("objection_to_petsc_dir", PETSC_DIR=str(tmp_path)).stdout


def test_importable_petsc4py_is_found_where_it_is(bash):
    output = bash(f'importable_petsc4py "{sys.executable}"')
    assert (Path(output.stdout.strip()) / "petsc4py").is_dir()
    assert bash(f'petsc_series=3.19; importable_petsc4py "{sys.executable}"').returncode == 1


def test_key_tells_mpi_compiler_python_and_options_apart(bash, tmp_path):
    python = f'describe_petsc "{sys.executable}" ""'
    usual = bash(python).stdout
    assert bash(python).stdout == usual
    assert bash(f'configure_options="--with-debugging=1"; {python}').stdout != usual
    assert bash(f"petsc_version=3.26.9; {python}").stdout != usual
    other = tmp_path / "mpicc"
    other.symlink_to(str(shutil.which("mpicc")))
    assert bash(python, PATH=f"{tmp_path}:{os.environ['PATH']}").stdout != usual
    assert f"cpython-{sys.version_info[0]}{sys.version_info[1]}" in usual
    assert "compiler " in usual
    assert "\nmpi " in usual


def test_key_of_a_given_petsc_follows_its_configuration(bash, petsc_dir):
    folder = petsc_dir()
    call = f'describe_petsc "{sys.executable}" "{folder}"'
    before = bash(call).stdout
    (Path(folder) / "include" / "petscconf.h").write_text("#define PETSC_HAVE_MUMPS 1\n")
    assert bash(call).stdout != before


def test_cache_is_complete_only_with_every_wheel_unchanged(bash, tmp_path):
    folder = tmp_path / "petsc"
    folder.mkdir()
    wheel = folder / "petsc.whl"
    wheel.write_bytes(b"content")

    def complete():
        return bash(f'is_complete "{folder}"').returncode == 0

    assert not complete()
    digest = hashlib.sha256(b"content").hexdigest()
    (folder / "complete").write_text(f"{digest}  ./petsc.whl\n")
    assert complete()
    wheel.write_bytes(b"cont")
    assert not complete()
    wheel.unlink()
    assert not complete()


STUB = """
mkdir -p "$cache"
run_logged() { # instead of hours: one wheel a step, and what STUB says
    case $1 in
        */petsc.log) eval "${STUB:-:}"; touch "$build/wheels/petsc.whl" ;;
        */petsc4py.log) touch "$build/wheels/petsc4py.whl" ;;
    esac
}
"""


def test_killed_build_leaves_nothing_that_looks_complete(bash, tmp_path):
    fill = STUB + f'fill_petsc_cache "$cache/petsc-key" "{sys.executable}" ""'
    cache = tmp_path / "cache"
    killed = bash(fill, STUB="kill -KILL $$")
    assert killed.returncode != 0
    assert not (cache / "petsc-key").exists()
    assert len(list(cache.glob("petsc-key.building.*"))) == 1
    again = bash(fill)
    assert again.returncode == 0, again.stderr
    assert "removing what an interrupted build has left" in again.stdout
    assert [entry.name for entry in cache.iterdir()] == ["petsc-key"]
    assert bash('is_complete "$cache/petsc-key"').returncode == 0


def test_failed_build_shows_the_end_of_configure_log(bash, tmp_path):
    fail = 'mkdir -p "${configure_log%/*}"; echo "no BLAS" >"$configure_log"; return 1'
    done = bash(
        STUB + 'mkdir "$cache/logs"; trap clean_up EXIT\n'
        f'fill_petsc_cache "$cache/petsc-key" "{sys.executable}" ""',
        STUB=fail,
    )
    assert done.returncode == 1
    assert "| no BLAS" in done.stderr
    assert "building petsc (minutes) failed" in done.stderr
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["logs"]


def test_cache_path_with_spaces_is_refused(bash, tmp_path):
    done = bash(
        f'fill_petsc_cache "$cache/petsc-key" "{sys.executable}" ""',
        DAEOSENS_CACHE=str(tmp_path / "a b"),
    )
    assert done.returncode == 1
    assert "path with spaces" in done.stderr


def test_failing_command_shows_its_last_lines_and_status(bash, tmp_path):
    log = tmp_path / "log"
    done = bash(
        f'run_logged "{log}" "compiling" sh -c "echo the real error; exit 3" || echo status $?'
    )
    assert "| the real error" in done.stderr
    assert "compiling failed (status 3)" in done.stderr
    assert "status 3" in done.stdout


def test_interrupted_command_is_stopped(bash, tmp_path):
    done = bash(
        "trap clean_up EXIT; trap 'exit 143' TERM\n"
        "(sleep 1; kill -TERM $$) &\n"
        f'run_logged "{tmp_path}/log" "sleeping" sh -c "echo \\$\\$ >{tmp_path}/pid; sleep 1000"'
    )
    assert done.returncode == 143
    process = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    end = time.monotonic() + 60
    while process.exists() and ") Z" not in process.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_requirements_are_those_of_pyproject():
    told = subprocess.run(
        [sys.executable, ROOT / "scripts/lib/requirements.py", "test", "--without", "petsc4py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]["test"]) < set(told)
    assert not any(line.startswith("petsc4py") for line in told)


@pytest.mark.parametrize("left_out", ["*.so", "starting_step.*.so"])
def test_a_checkout_that_is_not_compiled_names_the_remedy(tmp_path, left_out):
    shutil.copytree(
        ROOT / "daeosens", tmp_path / "daeosens", ignore=shutil.ignore_patterns(left_out)
    )
    # a copy of the package has no lines that count
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-c", "import daeosens"],
        cwd=tmp_path,
        env={**inherited, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    message, remedy = done.stderr.splitlines()[-2:]
    assert "the compiled part of daeosens is missing" in message
    assert "try: scripts/setup in the checkout" in remedy


def test_more_ranks_than_cores_as_any_user(run_mpi):
    ranks = (os.cpu_count() or 1) + 1
    done = run_mpi(ranks, ["-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"])
    assert (done.returncode, "".join(done.stdout.split())) == (0, str(ranks) * ranks)


RANKS = """
import pytest

@pytest.mark.mpi
def test_on_ranks(comm):
    {body}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "grace", "shown"),
    [
        (
            "assert comm.rank == 0, 'only here'",
            "60",
            ["only here", "failures on other ranks", "[rank 1]"],
        ),
        (
            "assert comm.rank == 0, 'only here'; comm.Barrier()",
            "1",
            ["only here", "other ranks hang"],
        ),
    ],
)
def test_failure_of_one_rank_is_shown_and_ends_the_job(
    tmp_path, run_mpi, monkeypatch, body, grace, shown
):
    monkeypatch.setenv("DAEOSENS_TEST_GRACE", grace)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    test = tmp_path / "test_ranks.py"
    test.write_text(RANKS.format(body=body))
    options = ["-q", "-c", ROOT / "pyproject.toml", "-p", "conftest", "-p", "no:cacheprovider"]
    done = run_mpi(2, ["-m", "pytest", *options, test])
    assert done.returncode != 0
    for text in shown:
        assert text in done.stdout + done.stderr
