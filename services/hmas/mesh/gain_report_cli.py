"""The command `hmas report`: what scheduling would have brought a pool that is only observed, as one page."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hmas.contracts.rehearsal import Policy, Rehearsal
from hmas.mesh.client import open_bus
from hmas.mesh.command import run_command
from hmas.mesh.engines_needed import EnginesNeeded, engines_needed
from hmas.mesh.gain_records import GainTable, gain_table, recorded_gains
from hmas.mesh.gain_report import ReportFacts, render_gains
from hmas.mesh.past_files import Past
from hmas.mesh.state import DEFAULT_DATA_DIR, read_state
from hmas.mesh.whatif import ABSTAINS, asked, listen, seconds
from hmas.sim.past.rehearse import RehearsalQuestion, named_profile

MOST_REQUESTS = 6000  # by which engines are sized: about half a minute of a core for each number of engines tried
MOST_SIZED_S = 3000.0  # QoS keeps an hour, of which the first minutes are learnt from
NOT_TOLD = "the record is empty: leave HMAS_FORETELL on, and wait for a minute of traffic while the mesh observes"
console = Console()


def scheduling_report(
    last: Annotated[str, typer.Option(help="how far back: 90m, 24h; at most the seven days that are kept")] = "24h",
    out: Annotated[Path, typer.Option(help="the file that is written")] = Path("report.html"),
    target: Annotated[float, typer.Option(min=0.5, max=1.0, help="share on time for which engines are counted")] = 0.95,
    sizes: Annotated[
        bool, typer.Option("--engines/--no-engines", help="simulate how many engines keep that share; takes minutes")
    ] = True,
    pool: Annotated[str | None, typer.Option(help="the model's pool; default: the embedded mesh's")] = None,
    profile: Annotated[
        str, typer.Option(help="the engines' profile, to count them: a name or a file; default: fitted to their pace")
    ] = "",
    nats_url: Annotated[str | None, typer.Option(help="URL of the mesh's NATS server")] = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="HMAS_DATA_DIR", help="folder of the embedded mesh")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Write what scheduling would have brought while the mesh only observed: one HTML page. Ends with 3 where that
    cannot be said."""

    async def main() -> int:
        span_s = seconds(last)
        name = pool or read_state(data_dir).pool
        if not out.absolute().parent.is_dir():
            raise ValueError(f"there is no folder {out.absolute().parent} for --out: make it, or name another file")
        table = gain_table(await recorded_gains(open_bus(nats_url, data_dir), name, span_s))
        facts = ReportFacts(pool=name, span=f"the last {last}", made_s=time.time(), target=target)
        if not table.total.told:
            facts = replace(facts, unsized=_why_not(table))
        elif not sizes:
            facts = replace(facts, unsized="it was left out (--no-engines)")
        else:
            emulated = read_state(data_dir).profile if nats_url is None and not profile else ""
            facts = await _sized(facts, await listen(open_bus(nats_url, data_dir), name, MOST_SIZED_S),
                                 profile or emulated)  # fmt: skip
        out.write_text(render_gains(table, facts), encoding="utf-8")
        console.print(
            f"wrote {out}: {table.total.told} windows, {table.total.abstained} of which nothing could be said"
        )
        return 0 if table.total.told else ABSTAINS

    run_command(main)


def _why_not(table: GainTable) -> str:
    reasons = table.total.reasons
    return max(reasons, key=lambda each: reasons[each]) if reasons else NOT_TOLD


async def _sized(facts: ReportFacts, past: Past, profile: str) -> ReportFacts:
    """Returns the facts with the numbers of engines, by the last minutes' requests."""
    if past.facts is None or not past.in_force.observes:
        return replace(facts, unsized="the mesh does not observe now")
    sized = _Sized(past, profile, _window_s(past))
    scheduled = replace(past.in_force, observes=False)
    found: Sequence[EnginesNeeded] = ()
    try:
        engines = len(past.facts.engines)
        found, why = await engines_needed((past.in_force, scheduled), engines, facts.target, sized.ask)
    except ValueError as error:
        engines, why = len(past.facts.engines), str(error)
    return replace(facts, engines=engines, sized_s=sized.window_s, sizes=tuple(found), unsized=why)


def _window_s(past: Past) -> float:
    """Returns over how many seconds back there are `MOST_REQUESTS` requests, at most `MOST_SIZED_S`."""
    young = past.rows[-MOST_REQUESTS:]
    return min(MOST_SIZED_S, max(60.0, -young[0].arrival_s if young else 0.0))


@dataclass(frozen=True, slots=True)
class _Sized:
    """Rehearses policies over the last `window_s` seconds of a pool."""

    past: Past
    profile: str
    window_s: float

    async def ask(self, policies: Sequence[Policy]) -> Rehearsal:
        assert self.past.facts is not None
        question = RehearsalQuestion(
            window_s=self.window_s,
            facts=self.past.facts,
            in_force=self.past.in_force,
            candidates=tuple(policies),
            profile=named_profile(self.profile),
        )
        return await asked(question, self.past)
