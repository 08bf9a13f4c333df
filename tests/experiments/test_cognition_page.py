import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("catboost")  # evaluation refits cost models

from experiments.cognition.__main__ import kept_figures
from experiments.cognition.page import LEFT_OUT_GOALS, missed, page, retrained, shortfalls, why_size, worth
from hmas.prediction.models.catboost_model import CatBoostCostModel

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def figures(**changes: Any) -> dict[str, Any]:
    shares = {"perception_share": 0.9, "tokenizer_share": 0.02}
    latency = {"mean_ms": 1.0, "p80_ms": 1.5, "p98_ms": 3.0, "rate": 700.0} | shares | changes.pop("latency", {})
    perception = {
        "task": {"ttft_mae_ms": 10.0, "by_type": {"QA": [60, 0.9], "Translation": [59, 0.1]}},
        "length_model_known": {"mape": 0.1, "log_sd": 0.5},
        "length_model_unknown": {"log_sd": 0.6, "log_by_true": [0.4, 0.0, -0.4]},
    }
    perception |= changes.pop("perception", {})
    gains = {"loso_gain_over_rules": 0.2, "length_mae_gain_over_mlp_neither_named": 0.3}
    return {"perception": perception, "latency": latency, **gains, **changes}


def test_the_page_names_each_goal_that_is_missed_and_no_other() -> None:
    assert missed(shortfalls(figures())) == "Nothing that was asked for."
    page = missed(shortfalls(figures(loso_gain_over_rules=0.1, latency={"rate": 250.0, "perception_share": 0.8})))
    assert "| Sources left out, accuracy above the rules | 15.0 % | 10.0 % |" in page
    assert "| Batched, requests/s | 600 | 250 | perception takes 80.0 % of it, its tokenizer 2.0 %" in page
    assert "Latency, mean" not in page
    assert "MAPE" not in page


def test_the_reason_names_what_the_parts_reach_and_the_best_of_them_in_hindsight() -> None:
    sources = {
        "a": {"prompts": 30, "network": 0.2, "rules": 0.8, "words": 0.5, "ours": 0.7},
        "b": {"prompts": 90, "network": 0.6, "rules": 0.2, "words": 0.1, "ours": 0.5},
        "few": {"prompts": 29, "network": 1.0, "rules": 1.0, "words": 1.0, "ours": 1.0},
    }
    page = missed(shortfalls(figures(loso_all_nested=0.6, perception={"loso": sources})))
    assert "| Sources left out, all together | 86.0 % | 60.0 % |" in page
    assert "network alone 40.0 %, patterns 50.0 %, words 30.0 %, all together 60.0 %" in page
    assert "in hindsight 70.0 %" in page


def test_a_type_or_a_tenth_that_falls_short_is_named() -> None:
    task = {"ttft_mae_ms": 10.0, "by_type": {"QA": [60, 0.9], "Extraction": [61, 0.7]}}
    length = {"log_sd": 0.6, "log_by_true": [0.6, 0.0, -0.5]}
    page = missed(shortfalls(figures(perception={"task": task, "length_model_unknown": length})))
    assert "60 prompts or more: Extraction | 80.0 % | 70.0 % |" in page
    assert "| Mean log error of the shortest tenth | +0.55 | +0.60 |" in page
    assert "longest tenth" not in page


def test_what_was_not_measured_is_not_called_missed() -> None:
    assert missed(shortfalls(figures(loso_gain_over_rules=None))) == "Nothing that was asked for."


def test_figures_are_kept_only_of_the_same_artefacts(tmp_path: Path) -> None:
    path = tmp_path / "cognition.json"
    with pytest.raises(SystemExit, match="no latency figures of the present models"):
        kept_figures(path, ["latency"])
    old = {"prediction": {"version": CatBoostCostModel().version}, "perception": {"version": "x"}}
    path.write_text(json.dumps(old))
    with pytest.raises(SystemExit, match="no prediction figures of the present models"):
        kept_figures(path, ["prediction"])  # from before depths were chosen on inner folds
    path.write_text(json.dumps(old | {"prediction": old["prediction"] | {"nested": {}}}))
    assert kept_figures(path, ["prediction"])["perception"] == {"version": "x"}
    with pytest.raises(SystemExit, match="no perception figures of the present models: name perception in --only too"):
        kept_figures(path, ["prediction", "perception"])


def test_the_size_that_ships_is_held_against_the_best_and_the_cheapest() -> None:
    def size(layers: int, sd: float, ms: float, *rates: tuple[float, ...]) -> dict[str, Any]:
        return {"layers": layers, "length_log_sd": sd, "batched_ms": ms} | ({"goodput_by_seed": rates} if rates else {})

    small, large = size(1, 0.6, 0.5, (0.90, 0.91), (0.80, 0.82)), size(6, 0.45, 3.0)
    own = size(3, 0.5, 1.5, (0.92, 0.93), (0.85, 0.87))
    told = why_size([small, own, large], 3)
    assert "6 layers tell lengths better (0.450 beside 0.500), for 2.0 times the CPU time" in told
    assert "1.0 ms more a request buys: +2.0 ± 0.0 and +5.0 ± 0.0 points of goodput" in told
    level = size(3, 0.5, 1.5, (0.92, 0.90), (0.80, 0.82))
    assert "buys nothing beyond chance: +0.5" in why_size([small, level], 3)
    assert "costs: -2.0" in why_size([small, size(3, 0.5, 1.5, (0.88, 0.89), (0.78, 0.80))], 3)
    assert "Of all sizes they tell lengths best" in why_size([small, own], 3)
    assert "points" not in why_size([size(1, 0.6, 0.5), own], 3)  # the cheapest did not serve


def test_what_perception_is_worth_is_told_seed_by_seed() -> None:
    served = [
        {"load": 1.4, "estimator": name, "by_seed": rates}
        for name, rates in {"trained": (0.90, 0.92), "rules": (0.93, 0.95), "prior alone": (0.80, 0.94)}.items()
    ]
    (line,) = worth(served)
    assert line.startswith("1.4 λ*: the trained perception has -3.0 ± 0.0 points against rules, +4.0")
    assert "points against prior alone (chance)." in line
    assert worth([{"load": 1.4, "estimator": "trained"}]) == []


def test_the_page_can_be_written_from_what_is_published() -> None:
    published = json.loads((RESULTS / "cognition.json").read_text(encoding="utf-8"))
    assert "## Sizes of perception" in page(published)


def test_every_goal_of_the_predictions_is_named_when_it_is_missed() -> None:
    low = dict.fromkeys((name for name, *_ in LEFT_OUT_GOALS), 0.5)
    page = missed(
        shortfalls(figures(**low, task_accuracy=0.9, ece=0.04, loso_network_alone=0.5, after50_decode_to_after800=1.2))
    )
    assert page.count(", R² |") == len(LEFT_OUT_GOALS) == 6
    for name in ("Task accuracy on the test part", "Expected calibration error", "Sources left out, network alone"):
        assert f"| {name} |" in page
    assert "| Time per token, error after 50 requests over that after 800, mixed | 1.10 | 1.20 |" in page


def test_lengths_far_from_what_was_predicted_are_named() -> None:
    length = {
        "log_sd": 0.6, "log_by_true": [0.4, -0.4], "log_by_predicted": [0.1, -0.2], "coverage": 0.93,
        "coverage_by_predicted": [0.9, 0.84],
    }  # fmt: skip
    page = missed(shortfalls(figures(perception={"length_model_unknown": length})))
    assert "| Mean log error of a fifth of the predicted lengths, the farthest from 0 | 0.15 | 0.20 |" in page
    assert "coverage, distance from 90 % | 2.0 % | 3.0 % |" in page
    assert "the farthest fifth of predicted lengths | 5.0 % | 6.0 % |" in page


def test_a_recipe_that_is_carried_out_again_must_come_near() -> None:
    ships = {"accuracy": 0.97, "mae": 200.0}
    assert ": within 1 point and 5 %." in retrained({"ships": ships, "again": {"accuracy": 0.962, "mae": 209.0}})
    assert "**not within**" in retrained({"ships": ships, "again": {"accuracy": 0.97, "mae": 211.0}})
    assert "**not within**" in retrained({"ships": ships, "again": {"accuracy": 0.95, "mae": 200.0}})
