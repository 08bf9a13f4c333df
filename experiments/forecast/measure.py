"""Fits and scores the forecasts, on workflows left out by task and as the paper splits.

By task: five folds of tasks; what is scored of a task was fitted on the others alone. The paper's split: of each
agent, with and without a call of a tool, the last fifth of the records is scored, so that tasks recur. Calibration is
fitted on forecasts for tasks, or records, that were left out within the part that is fitted on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from catboost import CatBoostClassifier, CatBoostRegressor
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPRegressor

from experiments.forecast.stages import RecordedStage
from hmas.laws.job_profiles import DoneStage, JobProfiles, JobProfilesConfig

FOLDS, INNER = 5, 3
QUANTILES = (0.5, 0.9)
PROMPT_S, OUTPUT_S = 7.0e-5, 0.015 / 16 + 2.0e-4  # engine seconds of a token on `tiny-emulated` with 16 sequences
TREES: dict[str, Any] = {"verbose": 0, "thread_count": 1, "random_seed": 0, "allow_writing_files": False}
SHAPE: dict[str, Any] = {"depth": 5, "learning_rate": 0.05, "rsm": 0.5, "l2_leaf_reg": 6}
LEAST_S = 0.05  # added to what is left, so that its logarithm exists
Array = NDArray[Any]
BY_TASK, PAPER, APART = "by task", "paper's split", "kept apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of one way to forecast. `split`: how what is scored was left out."""

    forecast: str
    split: str
    system: str
    corpus: str
    metric: str
    value: float
    count: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """All stages as arrays."""

    stages: list[RecordedStage]
    numbers: Array
    left_s: Array
    output_tokens: Array
    calls_tool: Array
    has_tools: Array
    tasks: Array

    @classmethod
    def of(cls, jobs: Sequence[Sequence[RecordedStage]]) -> "Corpus":
        stages = [stage for job in jobs for stage in job]
        left = [PROMPT_S * s.left[0] + OUTPUT_S * s.left[1] for s in stages]
        return cls(
            stages, np.array([s.numbers for s in stages], float), np.array(left),
            np.array([s.output_tokens for s in stages], float), np.array([s.calls_tool for s in stages]),
            np.array([s.has_tools for s in stages]), np.array([s.task for s in stages]),
        )  # fmt: skip


def _folds(groups: Array, number: int, seed: int) -> Array:
    """Deals the groups, in random order, out to folds; returns the fold of each row."""
    names = np.random.RandomState(seed).permutation(sorted(set(groups)))
    fold = {name: place % number for place, name in enumerate(names)}
    return np.array([fold[name] for name in groups])


def paper_split(corpus: Corpus) -> Array:
    """Returns which rows are scored: the last fifth of each agent's records, with and without a call of a tool."""
    strata: dict[tuple[int, bool], list[int]] = {}
    for row in sorted(range(len(corpus.stages)), key=lambda i: corpus.stages[i].order):
        stage = corpus.stages[row]
        strata.setdefault((stage.agent, stage.calls_tool), []).append(row)
    scored = np.zeros(len(corpus.stages), bool)
    for rows in strata.values():
        scored[rows[int(0.8 * len(rows)) :]] = True
    return scored


def texts_of(corpus: Corpus, fitted: Array, width: int = 16) -> Array:
    """Returns dense vectors of the three texts of all rows: latent semantics of the words of those in `fitted`."""
    found = []
    for which in range(3):
        texts = [stage.texts[which] for stage in corpus.stages]
        words = TfidfVectorizer(sublinear_tf=True, min_df=3, max_features=4000)
        seen = words.fit_transform([texts[i] for i in np.flatnonzero(fitted)])
        found.append(TruncatedSVD(width, n_iter=2, random_state=0).fit(seen).transform(words.transform(texts)))
    return np.hstack(found)


# --- whether a tool is called


def bag_of_words(corpus: Corpus, fitted: Array, scored: Array) -> Array:
    rows = [stage.texts[0] for stage in corpus.stages]
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    seen = words.fit_transform([rows[i] for i in np.flatnonzero(fitted)])
    model = LogisticRegression(max_iter=500, C=3.0).fit(seen, corpus.calls_tool[fitted])
    found: Array = model.predict_proba(words.transform([rows[i] for i in np.flatnonzero(scored)]))[:, 1]
    return found


def intent(corpus: Corpus, rows: Array, fitted: Array, groups: Array) -> tuple[Array, Array]:
    """Returns for all rows the calibrated probability that a tool is called; and for the fitted ones what it was when
    they were left out, so that what is fitted on it sees it as it will be."""
    chosen = fitted & corpus.has_tools
    held = np.zeros(len(rows))
    inner = _folds(groups, INNER, 1)
    for fold in range(INNER):
        apart = chosen & (inner == fold)
        held[apart] = _intent(corpus, rows, chosen & (inner != fold))[apart]
    straight = IsotonicRegression(out_of_bounds="clip", y_min=0.01, y_max=0.99)
    straight.fit(held[chosen], corpus.calls_tool[chosen])
    found = np.where(corpus.has_tools, straight.predict(_intent(corpus, rows, chosen)), 0.0)
    own = np.where(chosen, straight.predict(held), found)
    return found, own


def _intent(corpus: Corpus, rows: Array, fitted: Array) -> Array:
    model = CatBoostClassifier(iterations=200, **SHAPE, **TREES).fit(rows[fitted], corpus.calls_tool[fitted])
    found: Array = model.predict_proba(rows)[:, 1]
    return found


# --- how long an answer is


def lengths(corpus: Corpus, rows: Array, fitted: Array, groups: Array) -> dict[str, Array]:
    """Returns the forecast lengths of all rows by each system."""
    texts, prompt = rows[:, corpus.numbers.shape[1] :], np.array([[s.prompt_tokens] for s in corpus.stages], float)
    long, logs = corpus.output_tokens, np.log1p(corpus.output_tokens)
    tool, own = intent(corpus, rows, fitted, groups)
    with_tool = np.hstack([rows, np.where(fitted, own, tool)[:, None]])
    numbers = np.hstack([corpus.numbers, with_tool[:, -1:]])

    def trees(columns: Array) -> Array:
        model = CatBoostRegressor(loss_function="MAE", iterations=300, **SHAPE, **TREES)
        found: Array = np.expm1(model.fit(columns[fitted], logs[fitted]).predict(columns))
        return found

    scaled = (texts - texts[fitted].mean(0)) / (texts[fitted].std(0) + 1e-9)
    network = MLPRegressor(hidden_layer_sizes=(64, 32), max_iter=80, early_stopping=True, random_state=0).fit(
        scaled[fitted], logs[fitted]
    )
    magnus = np.hstack([texts, prompt])
    forest = RandomForestRegressor(40, min_samples_leaf=2, max_features=0.4, random_state=0)
    line = LinearRegression().fit(prompt[fitted], long[fitted])
    return {
        "ours": trees(with_tool),
        "ours without tool intent": trees(rows),
        "ours without texts": trees(numbers),
        "MLP on text vectors": np.expm1(network.predict(scaled)),
        "Magnus-like": forest.fit(magnus[fitted], long[fitted]).predict(magnus),
        "linear": line.predict(prompt),
    }


# --- what a job still needs


def table(
    jobs: Sequence[Sequence[RecordedStage]], fitted: Callable[[RecordedStage], bool], *, medians: bool
) -> dict[int, Array]:
    """Returns the median and the 90 % quantile of what is left by the records that the gateway keeps, by the id of the
    stage. `medians`: Eq. 8's table; otherwise the records weighed as the gateway does."""
    profiles = JobProfiles(JobProfilesConfig(table=medians, window=512 if medians else 128))
    for job in jobs:
        if fitted(job[0]):
            profiles.learn(job[0].agent, [DoneStage(s.agent, s.prompt_tokens, s.output_tokens, 0.0) for s in job])
    found = {}
    for job in jobs:
        for s in job:
            if not fitted(s):
                known = profiles.weighted(job[0].agent, s.agent, s.index, s.prompt_tokens, s.answered)
                found[id(s)] = _of_records(known)
    return found


def _of_records(known: Sequence[tuple[Any, float]]) -> Array:
    if not known:
        return np.zeros(len(QUANTILES))
    left = np.array([PROMPT_S * r.need.prompt_tokens + OUTPUT_S * r.need.output_tokens for r, _ in known])
    order = np.argsort(left)
    sums = np.cumsum(np.array([weight for _, weight in known])[order])
    return np.array([left[order][np.searchsorted(sums, q * sums[-1])] for q in QUANTILES])


def left(corpus: Corpus, rows: Array, fitted: Array, groups: Array) -> Array:
    """Returns the median and the 90 % quantile of what is left of all rows, the latter made to cover by what was left
    out."""
    inner, logs = _folds(groups, INNER, 2), np.log(corpus.left_s + LEAST_S)
    held = np.zeros((len(rows), len(QUANTILES)))
    for fold in range(INNER):
        apart = fitted & (inner == fold)
        held[apart] = _left(rows, logs, fitted & (inner != fold))[apart]
    wider = np.quantile((logs - held[:, 1])[fitted], QUANTILES[1])
    found = _left(rows, logs, fitted)
    found[:, 1] = np.maximum(found[:, 1] + wider, found[:, 0])
    exact: Array = np.maximum(0.0, np.exp(found) - LEAST_S)
    return exact


def _left(rows: Array, logs: Array, fitted: Array) -> Array:
    quantiles = ",".join(map(str, QUANTILES))
    model = CatBoostRegressor(
        loss_function=f"MultiQuantile:alpha={quantiles}", iterations=250, **SHAPE | {"depth": 6}, **TREES
    )
    found: Array = model.fit(rows[fitted], logs[fitted]).predict(rows)
    return found


# --- scores


def pinball(actual: Array, forecast: Array, quantile: float) -> float:
    over = actual - forecast
    return float(np.maximum(quantile * over, (quantile - 1.0) * over).mean())


def calibration_error(probability: Array, happened: Array, bins: int = 10) -> float:
    place = np.minimum(bins - 1, (bins * probability).astype(int))
    parts = [(place == b) for b in range(bins)]
    return float(sum(p.mean() * abs(probability[p].mean() - happened[p].mean()) for p in parts if p.any()))


def measure(
    jobs: Sequence[Sequence[RecordedStage]], apart: Sequence[Sequence[RecordedStage]], say: Callable[[str], None]
) -> list[Figure]:
    """Returns all figures. `apart`: workflows by which nothing is fitted; with them everything is fitted on `jobs` and
    scored on them alone."""
    every = [*jobs, *apart]
    corpus = Corpus.of(every)
    if apart:
        fitted = np.arange(len(corpus.stages)) < sum(map(len, jobs))
        return _Scores(corpus, every, APART, [(fitted, ~fitted)], corpus.tasks, say).figures()
    fold = _folds(corpus.tasks, FOLDS, 0)
    splits = [(fold != f, fold == f) for f in range(FOLDS)]
    found = _Scores(corpus, every, BY_TASK, splits, corpus.tasks, say).figures()
    scored = paper_split(corpus)
    single = np.arange(len(corpus.stages))
    return found + _Scores(corpus, every, PAPER, [(~scored, scored)], single, say, whole=False).figures()


@dataclass(slots=True)
class _Scores:
    """The forecasts of one way to split. `groups`: what the inner folds keep together. `whole`: jobs are on one side of
    the split, so that what they still need can be learnt of whole ones."""

    corpus: Corpus
    jobs: Sequence[Sequence[RecordedStage]]
    split: str
    splits: Sequence[tuple[Array, Array]]
    groups: Array
    say: Callable[[str], None]
    whole: bool = True

    def figures(self) -> list[Figure]:
        corpus, count = self.corpus, len(self.corpus.stages)
        scored = np.zeros(count, bool)
        tool = {name: np.zeros(count) for name in ("ours", "bag of words")}
        long: dict[str, Array] = {}
        rest: dict[str, Array] = {}
        for number, (fitted, apart) in enumerate(self.splits):
            scored |= apart
            rows = np.hstack([corpus.numbers, texts_of(corpus, fitted)])
            tool["ours"][apart] = intent(corpus, rows, fitted, self.groups)[0][apart]
            with_tools = apart & corpus.has_tools
            if with_tools.any():
                tool["bag of words"][with_tools] = bag_of_words(corpus, fitted & corpus.has_tools, with_tools)
            for name, found in lengths(corpus, rows, fitted, self.groups).items():
                long.setdefault(name, np.zeros(count))[apart] = found[apart]
            if self.whole:
                for name, found in self._rest(rows, fitted, apart).items():
                    rest.setdefault(name, np.zeros((count, len(QUANTILES))))[apart] = found
            self.say(f"{self.split}: {number + 1} of {len(self.splits)}")
        return [*self._tool(tool, scored), *self._long(long, scored), *self._rested(rest, scored)]

    def _rest(self, rows: Array, fitted: Array, apart: Array) -> dict[str, Array]:
        known = {id(stage) for stage, of in zip(self.corpus.stages, fitted, strict=True) if of}
        some = [stage for stage, of in zip(self.corpus.stages, apart, strict=True) if of]
        found = {"trees": left(self.corpus, rows, fitted, self.groups)[apart]}
        for name, medians in (("table", True), ("gateway", False)):
            by = table(self.jobs, lambda stage: id(stage) in known, medians=medians)
            found[name] = np.array([by[id(stage)] for stage in some])
        return found

    def _each(self, scored: Array) -> list[tuple[str, Array]]:
        names = np.array([stage.corpus for stage in self.corpus.stages])
        corpora = dict.fromkeys(names[scored])
        return [("all", scored), *((str(name), scored & (names == name)) for name in corpora)]

    def _tool(self, found: dict[str, Array], scored: Array) -> list[Figure]:
        called, figures = self.corpus.calls_tool, []
        for corpus, rows in self._each(scored & self.corpus.has_tools):
            base = Figure(
                forecast="tool", split=self.split, system="", corpus=corpus, metric="", value=0.0, count=int(rows.sum())
            )
            for name, values in found.items():
                error = calibration_error(values[rows], called[rows])
                figures.append(replace(base, system=name, metric="ECE", value=error))
                if 0 < called[rows].sum() < rows.sum():
                    area = float(roc_auc_score(called[rows], values[rows]))
                    figures.append(replace(base, system=name, metric="AUC", value=area))
        return figures

    def _long(self, found: dict[str, Array], scored: Array) -> list[Figure]:
        return [
            Figure(
                forecast="length", split=self.split, system=name, corpus=corpus, metric="MAE",
                value=float(np.abs(values - self.corpus.output_tokens)[rows].mean()), count=int(rows.sum()),
            )
            for corpus, rows in self._each(scored)
            for name, values in found.items()
        ]  # fmt: skip

    def _rested(self, found: dict[str, Array], scored: Array) -> list[Figure]:
        actual, figures = self.corpus.left_s, []
        for corpus, rows in self._each(scored) if found else ():
            base = Figure(
                forecast="left", split=self.split, system="", corpus=corpus, metric="", value=0.0, count=int(rows.sum())
            )
            medians = found["table"][:, [0, 0]]
            for name, values in (("Eq. 8's medians", medians), *found.items()):
                losses = [pinball(actual[rows], values[rows, i], q) for i, q in enumerate(QUANTILES)]
                figures += [
                    replace(base, system=name, metric=f"pinball {q:g}", value=x)
                    for q, x in zip(QUANTILES, losses, strict=True)
                ]
                figures.append(replace(base, system=name, metric="pinball", value=sum(losses) / len(losses)))
                covered = float((actual[rows] <= values[rows, 1] + 1e-12).mean())
                figures.append(replace(base, system=name, metric="covered", value=covered))
        return figures
