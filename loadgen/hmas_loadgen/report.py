"""Makes `report.html`, a self-contained page of tables and figures about one run or several runs side by side."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hmas.laws.scoring import Score
from hmas_loadgen import figures
from hmas_loadgen.compare import JOB_METRICS, METRICS, job_cells, score_cells
from hmas_loadgen.result import LoadResult
from hmas_loadgen.timeline import Timeline

PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, undefined=StrictUndefined
)


def render(results: Sequence[LoadResult], title: str, timeline: Timeline | None = None) -> str:
    """Returns the page as HTML. `timeline` holds the decisions of the mesh during the first run (`fetch_timeline`);
    None leaves their figure out."""
    drawn = list(_figures(results))
    if timeline and any(timeline.values()):
        drawn.append(figures.control(timeline, results[0].started_unix_s, results[0].offered_s))
    return PAGES.get_template("report.html.j2").render(
        JOB_METRICS=JOB_METRICS,
        METRICS=METRICS,
        jobs_of=lambda result: [[name or "all", *job_cells(score)] for name, score in result.jobs().items()],
        figures=drawn,
        results=results,
        rows_of=_score_rows,
        scores=[[r.name, *score_cells(r.score())] for r in results],
        title=title,
        yaml=lambda config: yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True),
    )


def write(path: Path, results: Sequence[LoadResult], title: str, timeline: Timeline | None = None) -> None:
    path.write_text(render(results, title, timeline), encoding="utf-8")


def _figures(results: Sequence[LoadResult]) -> Iterable[str]:
    yield figures.cdf(results, "ttft_s")
    yield figures.cdf(results, "tpot_s")
    yield figures.over_time(results, "goodput", "Goodput by time of arrival", "ok requests / s")
    yield figures.over_time(results, "esg_rate", "ESG by time of completion", "ESG / s")
    yield figures.bars("Goodput rate by task type", {r.name: r.by_task() for r in results})
    tenants = {r.name: r.by_tenant() for r in results}
    if any(len(found) > 1 for found in tenants.values()):
        yield figures.bars("Goodput rate by tenant", tenants)


def _score_rows(scores: Mapping[str, Score]) -> Iterable[list[str]]:
    return ([name, *score_cells(score)] for name, score in scores.items())
