"""`t3sim explore`: a page to choose, compare and plot runs of the store and of archives."""

from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from sim.results import ResultsArchive, ResultsError
from sim.results import open as open_results
from sim.run.store import Store
from sim.view.explore_page import explore_page
from traces.errors import UserError
from traces.output import output_path, replacing

LAST = 100
LOOPBACK = "127.0.0.1"


@click.command()
@click.argument("sources", metavar="[STORE|ARCHIVE]...", nargs=-1, type=click.Path())
@click.option("--last", type=click.IntRange(min=1), help=f"Runs of a store, last used first.  [{LAST}]")
@click.option("-o", "--output", type=click.Path(), help="FILE.html to write.")
@click.option("--serve", is_flag=True, help="Show the page at an address of this computer, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), help="Of --serve.  [a free one]")
def explore(sources: tuple[str, ...], last: int | None, output: str | None, serve: bool, port: int | None) -> None:
    """Make one HTML page of all runs in archives, or in a STORE (a folder; without arguments: the user's store).

    The page needs no network. On it: choose runs by any field, compare two, times and traffic as bars, what a figure
    depends on, Pareto fronts, the origin of each number, tables as CSV.

    Example: t3sim explore small.h5 -o small.html
    """
    if output is None and not serve:
        raise UserError("explore: give --output FILE.html or --serve")
    if port is not None and not serve:
        raise UserError("--port: is for --serve, which shows the page at an address: give both")
    if last is not None and sources and not any(Path(source).is_dir() for source in sources):
        raise UserError("--last: is for the runs of a store; an archive is shown whole: leave it out")
    path = None if output is None else output_path(output)
    if path is not None and path.suffix != ".html":
        raise UserError(f"--output: found {output}, allowed is a name that ends with .html")
    title = ", ".join(Path(source).name for source in sources) or "the store"
    text = explore_page(_archives(sources or (str(Store().folder),), last or LAST), title)
    if path is not None:
        with replacing(path) as temporary:
            Path(temporary).write_text(text, encoding="utf-8")
        click.echo(f"wrote {output}")
    if serve:
        _serve(text, port or 0)


def _archives(sources: tuple[str, ...], last: int) -> Iterator[ResultsArchive]:
    for source in sources:
        if not Path(source).is_dir():
            yield open_results(source)
            continue
        finished = [entry.path for entry in Store(source).entries() if entry.finished]
        for path in finished[:last]:
            with suppress(ResultsError):  # removed or damaged since; `t3sim store check` names it
                yield open_results(path)


def _serve(text: str, port: int) -> None:
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), handler_of(text))
    except OSError as problem:
        raise UserError(f"--port: found {port}, which cannot be used: {problem.strerror}") from None
    with server:
        click.echo(f"http://{LOOPBACK}:{server.server_port}/ (Ctrl-C ends it)")
        server.serve_forever()


def handler_of(text: str) -> type[BaseHTTPRequestHandler]:
    """A handler that answers GET / with a page, and everything else with 404."""
    content = text.encode()

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):  # the browser has left
                super().handle()

        def do_GET(self) -> None:
            if self.path != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """No line for each request."""

    return Handler
