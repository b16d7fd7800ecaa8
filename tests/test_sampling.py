"""Which cases of tests with many cases run: a sample, the same in every run with the same seed."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.fixture
def collected(tmp_path):
    """Collect a test with 50 cases and one with a single case, under the suite's own conftest."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n")
    program = tmp_path / "test_cases.py"
    program.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('k', range(50))\n"
        "def test_many(k): pass\n"
        "@pytest.mark.slow\n"
        "def test_single(): pass\n"
    )

    def collect(*options):
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return {line for line in run.stdout.splitlines() if "::" in line}

    return collect


def test_a_run_takes_a_sample_of_many_cases_and_all_of_few(collected):
    sample = collected()
    assert sample == collected("--sample-seed=0")
    assert len(sample) == 12 + 1
    another = collected("--sample-seed=1")
    assert len(another) == 12 + 1
    assert another != sample
    assert sample | another < collected("--all")


def test_a_quick_run_takes_a_case_of_each_test_that_is_not_slow(collected):
    (case,) = collected("--quick")
    assert case.startswith("test_cases.py::test_many[")


def test_all_cases_are_collected_and_a_case_by_its_name(collected):
    assert len(collected("--all")) == 51
    assert collected("test_cases.py::test_many[7]") == {"test_cases.py::test_many[7]"}
