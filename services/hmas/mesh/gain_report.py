"""The page of `hmas report`: one HTML file, with all that it needs in it, about what scheduling would have brought."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import matplotlib
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from hmas.laws.scheduling_gains import GainSum
from hmas.mesh.engines_needed import EnginesNeeded
from hmas.mesh.gain_records import GainTable, TenantSum

SIZE_INCHES = (8.0, 3.2)
WAS, SCHEDULED = "#e0803a", "#2f81f7"  # each is readable on white, and to the colour-blind
TEMPLATE = "gain_report.html.j2"
PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, undefined=StrictUndefined
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """What the page tells beside the table: the pool, the span in words, when it was made (Unix s), how many engines
    there are now, and how many keep `target` of the last `sized_s` seconds' requests on time as it was and as
    scheduled; `unsized` says why that is not told."""

    pool: str
    span: str
    made_s: float
    engines: int = 0
    target: float = 0.95
    sized_s: float = 0.0
    sizes: tuple[EnginesNeeded, ...] = ()
    unsized: str = ""


def render_gains(table: GainTable, facts: ReportFacts) -> str:
    """Returns the page as HTML."""
    return PAGES.get_template(TEMPLATE).render(
        facts=facts,
        made=_clock(facts.made_s),
        total=table.total,
        headline=_headline(table.total),
        figure=_bars(table.hours) if any(each.told for each in table.hours.values()) else "",
        hours=[[_clock(start_s), *_cells(each)] for start_s, each in sorted(table.hours.items())],
        tenants=[_tenant_cells(each) for each in table.tenants],
        reasons=sorted(table.total.reasons.items(), key=lambda each: (-each[1], each[0])),
        sizes=_sizes(facts),
    )


def _headline(total: GainSum) -> str:
    if total.was is None or total.scheduled is None:
        return "What scheduling would have brought cannot be said."
    return f"On time: {total.was:.0%} as it was, {total.scheduled:.0%} as scheduled."


def _cells(each: GainSum) -> list[str]:
    windows = f"{each.told} of {each.told + each.abstained}"
    if each.was is None or each.scheduled is None or each.low is None or each.high is None:
        return ["cannot be said", "", "", windows]
    spread = f"{each.low:.0%} to {each.high:.0%}"
    return [f"{each.was:.1%}", f"{each.scheduled:.1%}", spread, windows]


def _tenant_cells(each: TenantSum) -> list[str]:
    gain = 100.0 * (each.scheduled - each.was)
    return [each.tenant, f"{each.was:.1%}", f"{each.scheduled:.1%}", f"{gain:+.1f} points"]


def _sizes(facts: ReportFacts) -> list[list[str]]:
    names = ("as it was", "as scheduled")
    return [
        [name, f"more than {size.tried}" if size.engines is None else str(size.engines)]
        for name, size in zip(names, facts.sizes, strict=False)
    ]


def _bars(hours: Mapping[float, GainSum]) -> str:
    """Returns the shares of each hour as an `<svg>` element; the same hours give the same bytes."""
    starts: Sequence[float] = [start_s for start_s in sorted(hours) if hours[start_s].told]
    sums = [hours[start_s] for start_s in starts]
    style = {"svg.fonttype": "none", "svg.hashsalt": "on time by hour", "font.size": 9}
    with matplotlib.rc_context(style):  # type: ignore[arg-type]  # the type stubs accept literal keys only
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        places = range(len(starts))
        scheduled = [each.scheduled or 0.0 for each in sums]
        lower = [max(0.0, share - (each.low or 0.0)) for share, each in zip(scheduled, sums, strict=True)]
        upper = [max(0.0, (each.high or 0.0) - share) for share, each in zip(scheduled, sums, strict=True)]
        axes.bar([i - 0.2 for i in places], [each.was or 0.0 for each in sums], 0.4, color=WAS, label="as it was")
        axes.bar(
            [i + 0.2 for i in places], scheduled, 0.4, yerr=(lower, upper), capsize=2, color=SCHEDULED,
            label="as scheduled, with its 90 % interval",
        )  # fmt: skip
        axes.set_xticks(list(places), [_clock(start_s)[11:16] for start_s in starts], rotation=90)
        axes.set(ylim=(0.0, 1.05), ylabel="share on time", xlabel="hour (UTC)")
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper left", bbox_to_anchor=(0.0, 1.15))
        axes.spines[["top", "right"]].set_visible(False)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
