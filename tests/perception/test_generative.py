import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hmas.contracts.request import TagSource, TaskType
from hmas.perception.agent.backend import PromptView
from hmas.perception.backends.generative import (
    MOST_ANSWER_TOKENS,
    SCHEMA,
    EndpointCompletion,
    GenerativeBackend,
    longest_answer,
    parse,
    tagging_prompt,
)
from hmas.perception.settings import PerceptionSettings

GOOD = {"task_type": "QA", "slo_ttft_ms": 4000, "slo_tpot_ms": 70, "output_tokens": 120}


def view(text: str) -> PromptView:
    return PromptView(text=text, prompt_tokens=5, model="m", tenant="t", max_tokens=None)


def test_a_valid_answer_is_an_estimate() -> None:
    estimate = parse(json.dumps(GOOD))
    assert estimate is not None
    assert (estimate.task, estimate.output_tokens, estimate.output_tokens_p90) == (TaskType.QA, 120.0, 240.0)


@pytest.mark.parametrize(
    "answer",
    [
        None, "", "{", "null", "[]", "42", '"QA"', "not json", "[" * 1900,
        json.dumps({**GOOD, "task_type": "Poetry"}),
        json.dumps({**GOOD, "task_type": "unknown"}),
        json.dumps({**GOOD, "output_tokens": 0}),
        json.dumps({**GOOD, "output_tokens": -5}),
        json.dumps({**GOOD, "output_tokens": "120"}),
        json.dumps({**GOOD, "output_tokens": True}),
        json.dumps({**GOOD, "output_tokens": 1.5}),
        json.dumps({**GOOD, "output_tokens": 10**9}),
        json.dumps({**GOOD, "slo_ttft_ms": 0}),
        json.dumps({**GOOD, "extra": 1}),
        json.dumps({k: v for k, v in GOOD.items() if k != "slo_tpot_ms"}),
        '{"task_type": "QA", "slo_ttft_ms": NaN, "slo_tpot_ms": 70, "output_tokens": 1}',
        json.dumps(GOOD) + " " * 3000,
    ],
)  # fmt: skip
def test_anything_else_is_unknown(answer: str | None) -> None:
    assert parse(answer) is None


def test_every_answer_that_the_schema_allows_fits_its_tokens() -> None:
    """Were each of its bytes a token."""
    assert SCHEMA["additionalProperties"] is False
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"])
    extremes = [
        [
            len(json.dumps(name)) + len(json.dumps(value))
            for value in field.get("enum") or (field["minimum"], field["maximum"])
        ]
        for name, field in SCHEMA["properties"].items()
    ]
    marks = len("{}") + len(": ") * len(extremes) + len(", ") * (len(extremes) - 1)
    assert marks + sum(map(max, extremes)) == len(longest_answer()) == MOST_ANSWER_TOKENS - 1
    assert parse(longest_answer())


def test_a_long_prompt_is_asked_at_a_bounded_length() -> None:
    assert len(tagging_prompt("x" * 10**6)) < 4000


class _Endpoint(BaseHTTPRequestHandler):
    seen: list[dict[str, Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append(body)
        text = body["messages"][0]["content"]
        if "FAIL" in text:
            self.send_error(500)
            return
        content = "garbage" if "GARBAGE" in text else json.dumps(GOOD)
        message = {"role": "assistant", "content": content}
        answer = {
            "id": "1", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }  # fmt: skip
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_openai_endpoint_gets_the_schema_and_its_failures_are_unknown(endpoint: str) -> None:
    complete = EndpointCompletion(endpoint, "m", "", timeout_s=10.0, workers=4)
    try:
        backend = GenerativeBackend(complete, "generative-1")
        good, garbage, failed = backend.estimate([view("why?"), view("GARBAGE"), view("FAIL")])
    finally:
        complete.close()
    assert good == parse(json.dumps(GOOD))
    assert (garbage, failed) == (None, None)
    assert _Endpoint.seen[0]["response_format"]["json_schema"]["schema"] == SCHEMA


def test_the_settings_choose_it(endpoint: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k\n")
    settings = PerceptionSettings(
        perception_backend="generative", generative_url=endpoint, generative_model="m", generative_api_key_file=key,
        perception_budget_s=10.0,
    )  # fmt: skip
    source, backend = settings.backend()
    assert (source, backend.version) == (TagSource.GENERATIVE, "generative-m")
    assert backend.estimate([view("why?")]) == [parse(json.dumps(GOOD))]


def test_settings_without_its_model_are_refused() -> None:
    with pytest.raises(ValueError, match="HMAS_GENERATIVE_MODEL"):
        PerceptionSettings(perception_backend="generative")


def test_a_dead_endpoint_is_unknown() -> None:
    complete = EndpointCompletion("http://127.0.0.1:9/v1", "m", "", timeout_s=1.0)
    try:
        assert GenerativeBackend(complete, "g").estimate([view("why?")]) == [None]
    finally:
        complete.close()
