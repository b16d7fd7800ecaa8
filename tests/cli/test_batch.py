"""Job scripts: what they ask of a scheduler, what they run, and that they are handed in again."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from daeosens.cli import main as cli
from daeosens.cli.batch import SCHEDULERS, Job, job_script, parse_time
from daeosens.errors import InputError

DRIVER = """
import sys
with open("calls.txt", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
sys.exit(75 if len(open("calls.txt").readlines()) < 3 else 0)
"""

OPTIONS = ["-n", "64", "--nodes", "2", "--time", "1-02:03", "--memory", "2000"]
NAMES = ["--queue", "long", "--account", "astro", "--module", "gcc/13", "--module", "openmpi"]
ASKED = {
    "slurm": (
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks=64",
        "#SBATCH --time=26:03:00",
        "#SBATCH --mem-per-cpu=2000M",
        "#SBATCH --partition=long",
        "#SBATCH --requeue",
    ),
    "pbs": (
        "#PBS -l select=2:ncpus=32:mpiprocs=32:mem=64000mb",
        "#PBS -l walltime=26:03:00",
        "#PBS -q long",
    ),
    "lsf": (
        "#BSUB -n 64",
        '#BSUB -R "span[ptile=32]"',
        '#BSUB -R "rusage[mem=2000]"',
        "#BSUB -W 26:03",
        "#BSUB -q long",
    ),
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a driver that ends with 75 twice, and a configuration whose folder has a blank."""
    folder = tmp_path / "two words"
    for name, text in (("drivers/count.py", DRIVER), ("configs/count.toml", 'driver = "count"\n')):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    return Path("configs/count.toml")


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_script_asks_for_what_the_user_wants(scheduler, config, capsys):
    words = ["batch", str(config), "--scheduler", scheduler, *OPTIONS, *NAMES]
    assert cli.main([*words, "--output", "out", "-tao_monitor"]) == 0
    script = Path(f"count.{scheduler}").absolute()
    submit = SCHEDULERS[scheduler].submit.format(script=f"'{script}'")
    assert capsys.readouterr().out == f"{script} is written; submit it by\n  {submit}\n"
    text = script.read_text(encoding="utf-8")
    assert [line for line in ASKED[scheduler] if line not in text.splitlines()] == []
    assert "module load gcc/13\nmodule load openmpi\n" in text
    limit = 26 * 3600 + 180 - 900
    assert f"--restart --time-limit {limit} --output out -tao_monitor" in text
    assert "astro" in text
    assert "\nmpiexec -n 64 python " in text
    subprocess.run(["shellcheck", "--shell=bash", "--exclude=SC1091", script], check=True)


ARRAYS = {
    "slurm": ("#SBATCH --array=0-7", "#SBATCH --output=count-%A-%a.log"),
    "pbs": ("#PBS -J 0-7", "#PBS -N count"),
    "lsf": ('#BSUB -J "count[1-8]"', "#BSUB -o count-%J-%I.log"),
}


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_array_is_asked_for_once(scheduler, config):
    words = ["batch", str(config), "--scheduler", scheduler, *OPTIONS, "--tasks", "8"]
    assert cli.main(words) == 0
    script = Path(f"count.{scheduler}").absolute()
    lines = script.read_text(encoding="utf-8").splitlines()
    assert [line for line in ARRAYS[scheduler] if line not in lines] == []
    options = [" ".join(re.split(r"[ =]", line)[:2]) for line in lines if line.startswith("#")]
    assert [options.count(option) for option in ("#SBATCH --output", "#BSUB -J", "#BSUB -o")] == [
        int(scheduler == "slurm"),
        *[int(scheduler == "lsf")] * 2,
    ]
    subprocess.run(["shellcheck", "--shell=bash", "--exclude=SC1091", script], check=True)


@pytest.mark.parametrize(
    ("scheduler", "variable", "value"),
    [
        ("slurm", "SLURM_ARRAY_TASK_ID", "3"),
        ("pbs", "PBS_ARRAY_INDEX", "3"),
        ("lsf", "LSB_JOBINDEX", "4"),
    ],
)
def test_an_element_is_handed_in_by_itself(
    scheduler, variable, value, config, tmp_path, monkeypatch
):
    """What stands in for a scheduler runs what it is given, with what it would be told."""
    words = ["--scheduler", scheduler, "--time", "0:10", "--tasks", "8"]
    assert cli.main(["batch", str(config), *words]) == 0
    script = Path(f"count.{scheduler}").absolute()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    qsub = """
cat > again.pbs
grep "^#PBS -J" again.pbs && exit 9
[ "$1 $2" = "-v DAEOSENS_TASK=3" ] || exit 9
unset PBS_ARRAY_INDEX
DAEOSENS_TASK=3 exec bash again.pbs
"""
    bsub = """
cat > again.lsf
[ "$(grep "^#BSUB -J" again.lsf)" = "#BSUB -J count[4]" ] || exit 9
exec bash again.lsf
"""
    for name, text in (
        ("mpiexec", 'shift 2\nexec "$@"\n'),
        ("scontrol", f'[ "$*" = "requeue 7_3" ] || exit 9\nexec bash "{script}"\n'),
        ("qsub", qsub),
        ("bsub", bsub),
    ):
        path = bin_folder / name
        path.write_text(f"#!/bin/bash\n{text}", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv(variable, value)
    subprocess.run(["bash", script], check=False)
    calls = Path("calls.txt").read_text(encoding="utf-8").splitlines()
    assert calls == [f"{config.absolute()} --restart --time-limit 540 --task 3"] * 3


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_script_is_handed_in_until_the_study_is_done(scheduler, config, tmp_path, monkeypatch):
    """Launchers and submit commands are stand-ins; the last of them runs the script again."""
    assert cli.main(["batch", str(config), "--scheduler", scheduler, "--time", "0:10"]) == 0
    script = Path(f"count.{scheduler}").absolute()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    again = f'#!/bin/bash\nexec bash "{script}"\n'
    for name, text in (
        ("mpiexec", '#!/bin/bash\nshift 2\nexec "$@"\n'),
        ("scontrol", f'[ "$*" = "requeue 7" ] || exit 9\n{again}'),
        ("qsub", again),
        ("bsub", again),
    ):
        path = bin_folder / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    subprocess.run(["bash", script], check=False)
    config_path = config.absolute()
    calls = Path("calls.txt").read_text(encoding="utf-8").splitlines()
    assert calls == [f"{config_path} --restart --time-limit 540"] * 3


def test_options_that_are_not_given_are_left_out():
    text = job_script("lsf", Job(3, 7200), Path("d.py"), Path("c.toml"), Path("c.lsf"))
    assert [word for word in ("span", "-q", "mem") if word in text] == []
    assert "#PBS -l select=1:ncpus=3:mpiprocs=3\n" in job_script(
        "pbs", Job(3, 7200), Path("d.py"), Path("c.toml"), Path("c.pbs")
    )


def test_time_left_for_saving():
    assert Job(1, 3600).time_limit == 3600 - 180
    assert Job(1, 600).time_limit == 600 - 60
    assert Job(1, 86400).time_limit == 86400 - 900
    assert parse_time("0:02:30") == 150


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--time", "2h"], "--time 2h"),
        (["--time", "0:02"], "--time: 120 s"),
        (["--time", "1:00", "-n", "6", "--nodes", "4"], "--nodes 4 for 6 ranks"),
        (["--time", "1:00", "--script", "no/folder/job"], "no/folder/job: cannot be written"),
    ],
)
def test_what_is_wrong_is_named(words, message, config, capsys):
    assert cli.main(["batch", str(config), "--scheduler", "slurm", *words]) == 2
    assert message in capsys.readouterr().err


def test_missing_configuration_and_unknown_scheduler(config, capsys):
    words = ["batch", "configs/other.toml", "--scheduler", "slurm", "--time", "1:00"]
    assert cli.main(words) == 2
    assert "configs/other.toml" in capsys.readouterr().err
    assert cli.main(["batch", str(config), "--scheduler", "sge", "--time", "1:00"]) == 2
    with pytest.raises(InputError, match="--memory 0"):
        Job(1, 3600, memory=0)
