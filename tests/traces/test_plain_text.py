"""Names of kernels that a terminal, an HTML page or Markdown would obey are shown with escapes, by every door."""

import dataclasses

import pytest

from tests.support.trace_samples import ListSource, random_kernel
from traces.archive import write_archive
from traces.command import meter, tables
from traces.command.cli import main
from traces.command.document import Heading, Table, to_html, to_markdown
from traces.command.meter import Meter
from traces.plain_text import shown

HOSTILE = "\x1b[2Jgone\r\x07\x9b31m\u202eabc\u2028[bold]<b>|`x`*y*"
ESCAPED = "\\x1b[2Jgone\\r\\x07\\x9b31m\\u202eabc\\u2028[bold]<b>|`x`*y*"


def test_what_is_printed_as_itself_stays():
    assert shown("void cutlass::Kernel<float, 128>(µ, 日本)") == "void cutlass::Kernel<float, 128>(µ, 日本)"
    assert shown(HOSTILE) == ESCAPED and shown("a\n\tb\udcff\U000e0001") == "a\\n\\tb\\udcff\\U000e0001"


def plain(text):
    return all(c.isprintable() or c == "\n" for c in text)


def test_tables_texts_warnings_and_errors(tmp_path, capsys):
    kernel = random_kernel()
    kernel.info = dataclasses.replace(kernel.info, name=HOSTILE)
    write_archive(tmp_path / "t.h5", ListSource([kernel]))
    assert main(["trace", "info", str(tmp_path / "t.h5")]) == 0
    tables.print_table(HOSTILE, (HOSTILE, "n"), [(HOSTILE, 1)])
    tables.print_text(f"a\n{HOSTILE}")
    tables.print_text(HOSTILE, err=True)
    assert main([HOSTILE]) == 2 and main(["trace", "info", str(tmp_path / HOSTILE)]) == 2
    out, err = capsys.readouterr()
    assert plain(out) and plain(err)
    assert out.count(ESCAPED) == 5 and err.count("\\x1b[2Jgone") >= 3


@pytest.mark.parametrize("terminal", [False, True])
def test_the_meter(monkeypatch, capsys, terminal):
    monkeypatch.setattr(meter, "QUIET_S", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with Meter("workgroups") as progress:
        progress._printed_s -= 100
        progress.update(HOSTILE, 1, 10)
    err = capsys.readouterr().err
    assert "\x1b[2J" not in err and "\u202e" not in err and "[bold]" in err


def test_a_report():
    blocks = [Heading(HOSTILE, 2), Table(("name",), [(HOSTILE,)])]
    text, page = to_markdown(blocks), to_html(blocks, HOSTILE, None)
    assert plain(text) and "<b>" not in page and "\x1b" not in page.partition("<body>")[2]
    assert "\\<b>\\|`x`" in text
    assert to_markdown([Table(("name",), [("[here](javascript:x)",)])]).splitlines()[2] == "| [here\\](javascript:x) |"
