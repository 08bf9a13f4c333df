"""The estimate of prompt tokens, from the body that a client sends, against what an engine counts: within 15 % in the
median for texts of all task types, tools and audio, and whatever a model's template adds to each prompt."""

import gzip
import io
import json
import os
import subprocess
import wave
from base64 import b64encode
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import pytest

from hmas.contracts.registry import CHAT_PATH
from hmas.gateway.openai.body import CallRules, parse_call
from hmas.gateway.settings import GatewaySettings
from hmas.gateway.token_scale import TokenScale
from hmas.meta.settings import MetaSettings
from hmas.perception.settings import PerceptionSettings
from hmas.statera.settings import StateraSettings
from hmas.worker.settings import WorkerSettings
from hmas_lab.perception.training.corpus import prompt_files
from tests.engines.environment import EngineEnvironment

pytestmark = [
    pytest.mark.engines, pytest.mark.timeout(600),
    pytest.mark.skipif("HMAS_DATA" not in os.environ, reason="needs the labelled prompts"),
]  # fmt: skip
SCRIPT = Path(__file__).with_name("token_counts.py")
BOUND = 0.15
OF_EACH = 60  # prompts of each file
SECONDS = [0.5, 1.0, 2.5, 4.0, 7.3, 12.0, 19.9, 29.5]


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


def texts() -> list[dict[str, Any]]:
    """Prompts of all task types in turn."""
    taken = []
    for path in prompt_files(Path(os.environ["HMAS_DATA"])):
        with gzip.open(path, "rt") as file:
            taken.append([json.loads(line)["prompt"] for line in islice(file, OF_EACH)])
    return [chat(prompt) for prompts in zip(*taken, strict=True) for prompt in prompts]


def tools() -> list[dict[str, Any]]:
    """Chats with a tool whose arguments are some of a service's settings, with their descriptions."""
    found = []
    for settings in (GatewaySettings, WorkerSettings, MetaSettings, StateraSettings, PerceptionSettings):
        schema = settings.model_json_schema()
        fields = list(schema["properties"].items())
        for first in range(0, len(fields), 4):
            parameters = {"type": "object", "properties": dict(fields[first : first + 4])}
            function = {"name": f"set_{first}", "description": str(settings.__doc__), "parameters": parameters}
            found.append(chat("Go on.", tools=[{"type": "function", "function": function}]))
    return found


@pytest.fixture(scope="module")
def counted(environment: EngineEnvironment) -> dict[str, list[Any]]:
    chats = {"text": texts(), "tools": tools()}
    asked = {"chats": [body for bodies in chats.values() for body in bodies], "audio": SECONDS}
    ran = subprocess.run(
        [str(environment.python), str(SCRIPT)], input=json.dumps(asked), env=environment.env(), check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(ran.stdout.splitlines()[-1])
    counts = iter(found["chats"])
    return {kind: [(body, next(counts)) for body in bodies] for kind, bodies in chats.items()} | {
        "audio": list(zip(SECONDS, found["audio"], strict=True))
    }


def estimate(**body: Any) -> int:
    return parse_call(CHAT_PATH, orjson.dumps({"model": "m", **body}), CallRules()).prompt_tokens


# About as many as the system prompts that Qwen2.5 and gpt-oss begin every chat with.
@pytest.mark.parametrize("added", [0, 21, 70])
@pytest.mark.parametrize("kind", ["text", "tools"])
def test_chats_count_as_a_tokenizer_does(kind: str, added: int, counted: dict[str, list[Any]]) -> None:
    """Each is estimated before its count is learnt, as a gateway does."""
    scale, errors = TokenScale(), []
    for body, count in counted[kind]:
        plain, count = estimate(**body), count + added
        errors.append(abs(scale.scaled("m", CHAT_PATH, plain) - count) / count)
        scale.learn("m", CHAT_PATH, plain, count)
    print(f"{kind}, {added} more: {len(errors)} chats, median error {median(errors):.1%}")
    assert len(errors) >= 50
    assert median(errors) <= BOUND


def test_audio_counts_as_the_model_hears_it(counted: dict[str, list[Any]]) -> None:
    errors = []
    for seconds, count in counted["audio"]:
        file = io.BytesIO()
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(16_000)
            sound.writeframes(bytes(2 * round(seconds * 16_000)))
        part = {"type": "input_audio", "input_audio": {"data": b64encode(file.getvalue()).decode(), "format": "wav"}}
        bare = estimate(messages=[{"role": "user", "content": []}])
        errors.append(abs(estimate(messages=[{"role": "user", "content": [part]}]) - bare - count) / count)
    print(f"audio: {len(errors)} files, median error {median(errors):.1%}")
    assert median(errors) <= BOUND
