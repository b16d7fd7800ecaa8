"""CSV tables: what is read, and how precisely a bad one is described."""

from pathlib import Path

import numpy as np
import pytest

from daeosens.errors import InputError
from daeosens.io.tables import read_table


def write(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_are_found_by_name(tmp_path):
    table = read_table(write(tmp_path, "# pelts\nyear, hare\n\n1900,30\n1901,47.2\n"))
    assert table.names == ("year", "hare")
    np.testing.assert_array_equal(table.column("hare"), [30, 47.2])
    np.testing.assert_array_equal(table.select("hare", "year"), [[30, 1900], [47.2, 1901]])


def test_byte_order_mark_and_windows_lines_are_read(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xef\xbb\xbft,x\r\n0,1\r\n")
    assert read_table(path).names == ("t", "x")


def test_unknown_column_names_the_nearest(tmp_path):
    table = read_table(write(tmp_path, "year,hare\n1900,30\n"))
    with pytest.raises(InputError, match=r'no column "hair"\n.*one of year, hare\n.*try: "hare"'):
        table.column("hair")


def test_missing_file_names_the_nearest(tmp_path):
    write(tmp_path, "", "lynx_hare.csv")
    with pytest.raises(InputError, match=r'lynx-hare.csv: no such file(.|\n)*"lynx_hare.csv"'):
        read_table(tmp_path / "lynx-hare.csv")


@pytest.mark.parametrize(("text", "what"), [("", "empty"), ("t,x\n", "no rows below the header")])
def test_empty_table_is_refused(tmp_path, text, what):
    with pytest.raises(InputError, match=f"data.csv: {what}"):
        read_table(write(tmp_path, text))


def test_all_bad_lines_are_reported_together(tmp_path):
    path = write(tmp_path, "t,x\n0,1\n1\n# note\n2,nan\n3,abc\n4,\n5,inf\n")
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert str(caught.value).splitlines() == [
        f"{path}: 3 problems",
        "  - line 3: 1 cells, expected 2 as in the header",
        '  - line 6, column "x": "abc", expected a finite number, or nothing or "NA"',
        '  - line 8, column "x": "inf", expected a finite number, or nothing or "NA"',
    ]


def test_empty_cells_are_missing_numbers(tmp_path):
    table = read_table(write(tmp_path, "t,x,y\n0,1,\n1,,3\n2,nan,4\n"))
    np.testing.assert_array_equal(table.column("x"), [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(table.column("y"), [np.nan, 3.0, 4.0])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0,1\n1,2\n", "line 1: expected names, found numbers"),
        ("t,x,x\n1,2,3\n", 'line 1: column "x" stands 2 times'),
        ("t;x\n1;2\n", "line 1: separated by ';' or tabs"),
    ],
)
def test_bad_header_is_explained(tmp_path, text, what):
    with pytest.raises(InputError, match=what):
        read_table(write(tmp_path, text))


def test_long_lists_of_problems_are_cut(tmp_path):
    with pytest.raises(InputError, match="and 10 more"):
        read_table(write(tmp_path, "x,y\n" + "1\n" * 30))


def test_other_encodings_are_refused_with_the_remedy(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("größe,x\n1,2\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"byte 2 is not UTF-8(.|\n)*iconv"):
        read_table(path)


def test_words_and_gaps_are_read(tmp_path):
    path = tmp_path / "cohort.csv"
    path.write_text("time,sex,y,empty\n0,f,1.5,NA\n1,m,NA,\n2,,.,nan\n3,f,n/a,null\n")
    table = read_table(path)
    np.testing.assert_array_equal(table.column("y"), [1.5, np.nan, np.nan, np.nan])
    assert np.isnan(table.column("empty")).all()
    assert table.words == {"sex": ("f", "m", "", "f")}
    with pytest.raises(InputError, match=r'column "sex" holds words, as "f"(.|\n)*columns='):
        table.column("sex")
