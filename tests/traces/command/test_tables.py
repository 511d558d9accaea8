"""Tables of the verbs: formats for programs, and columns that stay whole on a narrow terminal."""

import csv
import io

import click
import pytest
from click.testing import CliRunner

from traces.command import tables
from traces.command.output_format import with_format
from traces.command.tables import duration, print_json, print_table, print_text, share

ROWS = [("first", 1234567, 0.5, None), ("a|b\n", 7, 1.0, "x" * 40)]
COLUMNS = ("name", "count", "share", "text")
QUANTITIES = [("first", duration(1_500_000), share(0.0625)), ("second", None, share(1))]


@click.command()
@with_format
def verb(as_json):
    """Print a table, or a JSON object."""
    if as_json:
        print_json({"rows": len(ROWS)})
        return
    print_text("a line")
    print_table("Title", COLUMNS, ROWS)


def printed(*arguments):
    done = CliRunner().invoke(verb, arguments)
    assert done.exit_code == 0
    return done


def test_csv_has_plain_values_and_nothing_else():
    done = printed("--format", "csv")
    title, *lines = done.stdout.splitlines()
    assert title == "# Title" and done.stderr == "a line\n"
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    assert rows == [[*COLUMNS], ["first", "1234567", "0.5", ""], ["a|b\\n", "7", "1.0", "x" * 40]]


def test_csv_has_numbers_where_people_read_units():
    @click.command()
    @with_format
    def show(as_json):
        print_table("Title", ("name", "time", "share"), QUANTITIES)

    tables_of = [CliRunner().invoke(show, arguments).stdout.splitlines() for arguments in ((), ("--format", "csv"))]
    assert [line.split() for line in tables_of[0][2:]] == [["first", "1.5", "us", "6.2%"], ["second", "-", "100.0%"]]
    assert tables_of[1][1:] == ['name,"time, ns",share', "first,1500.0,0.0625", "second,,1", ""]


def test_a_column_with_several_units_has_them_in_its_rows():
    @click.command()
    @with_format
    def show(as_json):
        print_table("Title", ("what", "one"), [("time", duration(1500)), ("part", share(0.5)), ("none", None)])

    assert (
        CliRunner().invoke(show, ["--format", "csv"]).stdout == '# Title\nwhat,one\n"time, ns",1.5\npart,0.5\nnone,\n\n'
    )


def test_markdown():
    lines = printed("--format", "markdown").stdout.splitlines()
    assert lines[:3] == ["a line", "**Title**", ""]
    assert lines[3:5] == ["| name | count | share | text |", "| --- | ---: | ---: | --- |"]
    assert lines[6].startswith(r"| a\|b\n | 7 | 1 | xxx")


def test_json_in_both_spellings():
    assert printed("--json").stdout == printed("--format", "json").stdout == '{\n "rows": 2\n}\n'


def test_a_pipe_has_the_whole_width():
    lines = printed().stdout.splitlines()
    assert lines[2].split() == [*COLUMNS] and lines[3].split() == ["first", "1,234,567", "0.5", "-"]


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of a given width: it returns what was printed."""

    def show(width, *table):
        file = io.StringIO()
        console = tables.Console
        monkeypatch.setattr(
            tables, "Console", lambda: console(file=file, width=width, force_terminal=True, color_system=None)
        )
        print_table(*table)
        monkeypatch.setattr(tables, "Console", console)
        return file.getvalue().splitlines()

    return show


def test_columns_that_do_not_fit_follow_below(terminal):
    columns = ["configuration", *(f"column_{number}" for number in range(12))]
    rows = [(f"row {row}", *(row * 1000 + number for number in range(12))) for row in range(3)]
    lines = terminal(80, "Title", columns, rows)
    assert all(len(line) <= 80 for line in lines)
    words = [line.split() for line in lines]
    heads = [line for line in words if line[0] == "configuration"]
    assert len(heads) == 2 and heads[0][1:] + heads[1][1:] == columns[1:]
    assert words.count(["row", "2", *(f"{2000 + number:,}" for number in range(len(heads[0]) - 1))]) == 1


def test_long_text_is_folded_and_numbers_stay_whole(terminal):
    lines = terminal(60, "Title", ("field", "value", "source"), [("a.b", 123456789, "word " * 30)])
    assert all(len(line) <= 60 for line in lines) and any("123,456,789" in line for line in lines)
    assert " ".join(lines).count("word") == 30


def test_long_lines_of_text_continue_below(monkeypatch, capsys):
    console = tables.Console
    monkeypatch.setattr(tables, "Console", lambda stderr: console(width=40, force_terminal=True))
    command = "made by: t3sim run --gemm 1024x1024x512 --preset t3_2024"
    print_text(f"{'word ' * 12}end\n{command}\nshort")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 40 for line in lines if line != command) and lines[-2:] == [command, "short"]
    assert " ".join(" ".join(lines[:-2]).split()) == "word " * 12 + "end"
    monkeypatch.setattr(tables, "Console", console)
    print_text("word " * 30)
    assert capsys.readouterr().out == "word " * 30 + "\n"  # a pipe


def test_a_column_with_missing_values_is_still_one_of_numbers(terminal):
    lines = terminal(80, "Title", ("name", "count"), [("a", 1), ("b", None), ("c", ""), ("d", 10000)])
    assert [line.rstrip()[-2:] for line in lines[2:]] == [" 1", " -", "c", "00"]
