"""`report.html`: one self-contained file for one run, or for several runs side by side."""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from hmas.laws.scoring import Score
from hmas_loadgen import figures
from hmas_loadgen.compare import METRICS, score_cells
from hmas_loadgen.result import LoadResult
from hmas_loadgen.timeline import Timeline

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; margin: 1rem 0; font-size: 13px }}
th, td {{ border: 1px solid #ddd; padding: .25rem .6rem; text-align: right }}
th:first-child, td:first-child {{ text-align: left }}
figure {{ display: inline-block; margin: .3rem }} svg {{ max-width: 37rem; height: auto }}
.invalid {{ color: #a00 }} pre {{ background: #f6f6f6; padding: 1rem; overflow-x: auto }}
</style>
<h1>{title}</h1>
"""


def render(results: Sequence[LoadResult], title: str, timeline: Timeline | None = None) -> str:
    """The page. `timeline`: the mesh's decisions during the (single) run, if the target could tell."""
    parts = [_HEAD.format(title=html.escape(title))]
    parts += [_verdict(result) for result in results]
    parts.append(_table(("run", *METRICS), ([r.name, *score_cells(r.score())] for r in results)))
    parts += [f"<figure>{svg}</figure>" for svg in _figures(results)]
    if timeline and any(timeline.values()):
        parts.append(f"<figure>{figures.control(timeline, results[0].started_unix_s, results[0].offered_s)}</figure>")
    for result in results:
        parts += _details(result)
    return "\n".join(parts)


def write(path: Path, results: Sequence[LoadResult], title: str, timeline: Timeline | None = None) -> None:
    path.write_text(render(results, title, timeline), encoding="utf-8")


def _verdict(result: LoadResult) -> str:
    lag = f"lag of the generator: median {result.lag_p50_s * 1000:.2f} ms, p99 {result.lag_p99_s * 1000:.2f} ms"
    name = html.escape(result.name)
    if result.valid:
        return f"<p><b>{name}</b>: valid; {lag}</p>"
    return f'<p class="invalid"><b>{name}</b>: INVALID: {html.escape("; ".join(result.reasons))}; {lag}</p>'


def _figures(results: Sequence[LoadResult]) -> Iterable[str]:
    yield figures.cdf(results, "ttft_s")
    yield figures.cdf(results, "tpot_s")
    yield figures.over_time(results, "goodput", "Goodput by time of arrival", "ok requests / s")
    yield figures.over_time(results, "esg_rate", "ESG by time of completion", "ESG / s")
    yield figures.bars("Goodput rate by task type", {r.name: r.by_task() for r in results})
    tenants = {r.name: r.by_tenant() for r in results}
    if any(len(found) > 1 for found in tenants.values()):
        yield figures.bars("Goodput rate by tenant", tenants)


def _details(result: LoadResult) -> Iterable[str]:
    yield f"<h2>{html.escape(result.name)}</h2>"
    for label, scores in (("task type", result.by_task()), ("tenant", result.by_tenant())):
        yield _table((label, *METRICS), _score_rows(scores))
    if result.errors():
        yield _table(("error", "requests"), ([name, str(count)] for name, count in result.errors().items()))
    config = yaml.safe_dump(dict(result.config), sort_keys=False, allow_unicode=True)
    yield f"<pre>{html.escape(config)}</pre>"


def _score_rows(scores: Mapping[str, Score]) -> Iterable[list[str]]:
    return ([name, *score_cells(score)] for name, score in scores.items())


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
