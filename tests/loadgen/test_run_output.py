"""A run's folder: what is written, what a kill leaves, what a resume takes up."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from rich.console import Console
from rich.table import Table

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas_loadgen import report
from hmas_loadgen.compare import METRICS, compare_table, error_table
from hmas_loadgen.output import CONFIG, PARTIAL, REQUESTS, SUMMARY, FolderInUse, RunFolder, load_run, summary
from hmas_loadgen.plan import LoadPlan, Target
from hmas_loadgen.record import CUT_OFF, RequestRecord
from hmas_loadgen.result import INTERRUPTED, LoadResult
from hmas_loadgen.traces.row import Trace, TraceRow
from hmas_loadgen.worth import read_worth

PLAN = LoadPlan(
    name="p<1>",
    trace=Trace(
        name="t",
        rows=tuple(TraceRow(arrival_s=float(i), input_tokens=10, output_tokens=3) for i in range(20)),
        span_s=20.0,
    ),
    target=Target(base_urls=("http://h:1",), model="m", api_key="sk-secret"),
)
TASKS = (TaskType.QA, TaskType.SUMMARIZATION)


def record(index: int, outcome: Outcome = Outcome.FINISHED, error: str = "") -> RequestRecord:
    done = outcome is Outcome.FINISHED
    times = (index + 0.5, index + 0.55, index + 0.6) if done else ()
    return RequestRecord(
        index=index,
        request_id=f"r-{index}",
        tenant="acme" if index % 2 else "beta",
        task=TASKS[index % 2],
        slo=Slo(1.0, 0.1),
        prompt_tokens=10,
        expected_output_tokens=3,
        scheduled_s=float(index),
        sent_s=index + 0.001,
        end_s=index + 0.6,
        outcome=outcome,
        status=200 if done else 429,
        error=error,
        message="<b>full</b>" if error else "",
        base_url="http://h:1",
        output_tokens=len(times),
        first_token_s=times[0] if times else None,
        last_token_s=times[-1] if times else None,
        token_times_s=times,
    )


RECORDS = tuple(record(i) if i % 5 else record(i, Outcome.POOL_QUEUE_FULL, "429 pool_queue_full") for i in range(20))


def result(records: tuple[RequestRecord, ...] = RECORDS, reasons: tuple[str, ...] = ()) -> LoadResult:
    return LoadResult(
        name=PLAN.name,
        model="m",
        offered_s=20.0,
        warmup_s=0.0,
        config=PLAN.config(),
        started_unix_s=1e9,
        records=records,
        lag_p50_s=0.001,
        lag_p99_s=0.002,
        reasons=reasons,
    )


def test_a_finished_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    with RunFolder(tmp_path, PLAN) as folder:
        for each in RECORDS:
            folder.add(each)
        folder.finish(result())
    assert {path.name for path in tmp_path.iterdir()} == {CONFIG, REQUESTS, SUMMARY}
    found = load_run(tmp_path)
    assert found.records == RECORDS
    assert (found.score(), found.lag_p50_s, found.reasons) == (result().score(), 0.001, ())
    assert pq.read_table(tmp_path / REQUESTS).num_rows == 20
    assert "sk-secret" not in (tmp_path / CONFIG).read_text()


def test_the_utility_counts_by_the_weights_of_the_tenants_file(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("classes: {QA: 3}\ntenants: {acme: {weight: 2, max_queued: 5}, beta: {}, gamma: }\n")
    weighted = replace(result(), config=replace(PLAN, worth=read_worth(file)).config())
    with RunFolder(tmp_path / "run", replace(PLAN, worth=read_worth(file))) as folder:
        folder.finish(weighted)
    read = load_run(tmp_path / "run")
    worth = [(2.0 if r.tenant == "acme" else 1.0) * (3.0 if r.task == "QA" else 1.0) for r in RECORDS]
    on_time = sum(w for w, r in zip(worth, RECORDS, strict=True) if r.outcome is Outcome.FINISHED)
    assert len(set(worth)) > 1
    assert read.score().utility_rate == weighted.score().utility_rate == pytest.approx(on_time / sum(worth))
    assert replace(PLAN, worth=read_worth(file)).fingerprint() == PLAN.fingerprint(), "it may be scored again"
    assert read.score().goodput_rate == result().score().utility_rate == pytest.approx(0.8)
    console = Console(file=StringIO(), width=200)
    console.print(compare_table([result(), weighted]))
    assert isinstance(console.file, StringIO)
    assert re.search(rf"utility +- +{on_time / sum(worth):.1%}", console.file.getvalue())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("tenants: {a: {max_queued: 5}}", "weights neither a tenant nor a task type"),
        ("classes: {Poem: 2}", "no task type: Poem; choose one of QA"),
        ("classes: {QA: 0}", "the weight of QA must be 0.001 to 1e\\+06, not 0"),
        ("tenants: {a: {weight: yes}}", "the weight of a must be 0.001 to 1e\\+06, not True"),
        ("tenants: {a: {weight: .inf}}", "the weight of a must be 0.001 to 1e\\+06, not inf"),
        ("tenants: {a: 2}", "`a` must be a mapping"),
        ("tenants: [a]", "`tenants` must be a mapping"),
        ("[", "is not YAML"),
    ],
)
def test_a_file_without_weights_is_refused(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=error):
        read_worth(file)


def test_summary_has_every_number_and_no_nan(tmp_path: Path) -> None:
    with RunFolder(tmp_path, PLAN) as folder:
        folder.finish(result(tuple(record(i, Outcome.TIMED_OUT, "client time-out") for i in range(20))))
    text = (tmp_path / SUMMARY).read_text()
    told = json.loads(text)
    assert "NaN" not in text
    assert told["score"]["goodput_rate"] == 0.0
    assert told["score"]["ttft_p50_s"] is None
    assert told["errors"] == {"client time-out": 20}
    whole = summary(result())
    assert set(whole["by_task"]) == {"QA", "Summarization"}
    assert set(whole["by_tenant"]) == {"acme", "beta"}
    assert [w["offered"] for w in whole["windows"]] == [10, 10]


def test_a_killed_run_leaves_what_it_had_and_goes_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, PLAN)
    for each in RECORDS[:7]:
        folder.add(each)
    folder.__exit__(None, None, None)
    with (tmp_path / PARTIAL).open("ab") as file:
        file.write(b'{"index": 7, "request_id": "cut in the mid')  # killed while writing
    left = load_run(tmp_path)
    assert left.records == RECORDS[:7]
    assert left.reasons == ("killed before its end",)
    with RunFolder(tmp_path, PLAN, resume=True) as again:
        assert again.earlier == RECORDS[:7]
        for each in RECORDS[7:]:
            again.add(each)
    assert load_run(tmp_path).records == RECORDS


def test_what_a_stop_cut_off_is_sent_again(tmp_path: Path) -> None:
    with RunFolder(tmp_path, PLAN) as folder:
        folder.add(RECORDS[1])
        folder.add(record(2, Outcome.CANCELLED, CUT_OFF))
        folder.finish(result((RECORDS[1],), (INTERRUPTED,)))
    assert (tmp_path / PARTIAL).exists()
    assert not (tmp_path / SUMMARY).exists()
    assert load_run(tmp_path).reasons == (INTERRUPTED,)
    with RunFolder(tmp_path, PLAN, resume=True) as again:
        assert again.earlier == (RECORDS[1],)


def test_a_folder_in_use_says_what_to_do(tmp_path: Path) -> None:
    RunFolder(tmp_path, PLAN).__exit__(None, None, None)
    with pytest.raises(FolderInUse, match="add --resume to continue it, or choose another --out"):
        RunFolder(tmp_path, PLAN)
    with pytest.raises(FolderInUse, match="holds a run with other options"):
        RunFolder(tmp_path, replace(PLAN, seed=9), resume=True)
    with RunFolder(tmp_path, PLAN, resume=True) as folder:
        folder.finish(result())
    with pytest.raises(FolderInUse, match="holds this run, already finished"):
        RunFolder(tmp_path, PLAN, resume=True)


def test_no_run_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run"):
        load_run(tmp_path)


def test_config_is_plain_yaml(tmp_path: Path) -> None:
    RunFolder(tmp_path, PLAN).__exit__(None, None, None)
    config = yaml.safe_load((tmp_path / CONFIG).read_text())
    assert config["target"]["lengths"] == "direct"
    assert config["trace"] == {"name": "t", "note": "", "requests": 20, "duration_s": 20.0, "mean_rps": 1.0}
    assert config["fingerprint"] == PLAN.fingerprint()


def test_tables_compare_runs_and_mark_the_invalid() -> None:
    runs = [result(), result(reasons=("median lag 20.0 ms exceeds 10 ms",))]
    (table,) = compare_table(runs, "title").renderables
    assert isinstance(table, Table)
    assert [str(cell) for cell in table.columns[0].cells] == [*METRICS, "lag p50 / p99 ms"]
    goodput = list(table.columns[1].cells)
    assert goodput[:6] == ["20", "16", "80.0%", "80.0%", "0.80", "80.0%"]
    assert "invalid" in str(table.columns[2].header)
    assert "median lag 20.0 ms" in str(table.caption)
    errors = error_table(result())
    assert errors is not None
    assert list(errors.columns[1].cells) == ["4"]


def test_the_report_is_one_self_contained_file(tmp_path: Path) -> None:
    timeline: dict[str, list[dict[str, object]]] = {
        "topology": [{"unix_s": 1e9, "topology": "sjf"}, {"unix_s": 1e9 + 9, "topology": "edf"}],
        "control": [{"unix_s": 1e9 + t, "n_run": 8 + t, "b_token": 64} for t in range(12)],
    }
    page = report.render([result(), result(reasons=("x < y",))], "A & B", timeline)
    assert page.count("<svg") == 7
    assert "A &amp; B" in page
    assert "p&lt;1&gt;" in page
    assert "INVALID: x &lt; y" in page
    for external in ("<script", "<link", "src=", "@import"):
        assert external not in page
    assert {"sjf", "edf"} <= set(page.replace("<", " <").replace(">", "> ").split())
    assert len(page) < 400_000
    assert report.render([result()], "t") == report.render([result()], "t")
