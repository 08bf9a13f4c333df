"""Shows the progress of a load run in the terminal."""

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from hmas_loadgen.record import RunProgress

BAR_WIDTH = 28


class LiveProgress:
    """A context manager around `run_load` that is called with each RunProgress. It shows a live bar in a terminal and
    prints a line every 10 s otherwise."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._live: Live | None = None
        self._printed_s = 0.0

    def __enter__(self) -> "LiveProgress":
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: RunProgress) -> None:
        if self._live is not None:
            self._live.update(self._picture(progress))
        elif progress.elapsed_s - self._printed_s >= 10:
            self._printed_s = progress.elapsed_s
            self._console.print(f"{self._name}: {_line(progress)}", highlight=False)

    def _picture(self, progress: RunProgress) -> Table:
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(
            total=progress.window_s, completed=min(progress.elapsed_s, progress.window_s), width=BAR_WIDTH
        )
        grid.add_row(self._name, bar, _line(progress))
        return grid


def _line(p: RunProgress) -> str:
    ended = p.finished + p.failed
    share = f"{p.ok / ended:.0%}" if ended else "-"
    return (
        f"{max(0.0, p.elapsed_s):4.0f}/{p.window_s:.0f} s  sent {p.sent}/{p.planned} ({p.send_rps:.1f}/s)  "
        f"done {p.finished} ({p.finish_rps:.1f}/s, {p.token_rps:.0f} tok/s)  failed {p.failed}  "
        f"in flight {p.in_flight}  in SLO {share}  lag {p.lag_p50_s * 1000:.1f} ms"
    )
