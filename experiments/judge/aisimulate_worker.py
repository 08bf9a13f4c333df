"""Runs AISimulate in an environment that has it, which is none of ours: `PYTHON aisimulate_worker.py` reads questions
from its input, each a line of JSON, and writes each answer as a line of JSON. A question holds a `configuration`, as
AISimulate reads it, and a `command`: `predict` answers with the times of each request, `recommend` with the result of
its search, `version` with its version."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any, TextIO

FIELDS = ("session_id", "terminal_status", "ttft_ms", "itl_ms")


def _predict(configuration: dict[str, Any]) -> list[dict[str, Any]]:
    told = import_module("aisimulate.config.cli").CorePredictionConfig.model_validate(configuration)
    needed = import_module("aisimulate.sweeper.replay").ReplayOutputRequirements
    done = import_module("aisimulate.predict").run_prediction(
        told,
        stack="engine",
        runner_factory=import_module("aisimulate.runner").EngineReplayRunnerFactory(),
        output_requirements=needed(include_raw_report=True, capture_per_request=True),
    )
    return [{name: row.get(name) for name in FIELDS} for row in done.native["per_request"]]


def _recommend(configuration: dict[str, Any]) -> dict[str, Any]:
    told = import_module("aisimulate.config.cli").CoreRecommendationConfig.model_validate(configuration)
    asked = import_module("aisimulate.recommend").recommendation_to_sweeper(told)
    asked.sweep.max_eval_seconds = None  # no shape is given up because the machine is slow, and all run in this process
    runners = import_module("aisimulate.runner").EngineReplayRunnerFactory()
    sweeper = import_module("aisimulate.sweeper.search").Sweeper(runner_factory=runners, show_progress=False)
    found: dict[str, Any] = json.loads(sweeper.run(asked, top_n=None).to_json())
    return found


COMMANDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "predict": _predict,
    "recommend": _recommend,
    "version": lambda _: version("aisimulate"),
}


def main(questions: TextIO, answers: TextIO) -> None:
    for line in questions:
        question = json.loads(line)
        try:
            answer = {"answer": COMMANDS[question["command"]](question.get("configuration", {}))}
        except Exception as error:  # whatever it is, who asked is told of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    own = sys.stdout
    sys.stdout = sys.stderr  # what AISimulate prints is no answer
    main(sys.stdin, own)
