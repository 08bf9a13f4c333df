"""The OpenAPI description is true: what a mesh answers to bodies made from it has the status, the content type and the
shape that it tells. Schemathesis makes the bodies."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]
CHECKS = "status_code_conformance,content_type_conformance,response_schema_conformance,not_a_server_error"


def test_what_is_described_is_what_is_answered(mesh: Any, installed: Callable[[str], Path], tmp_path: Path) -> None:
    description = httpx.get(f"{mesh.url}/openapi.json").json()
    for methods in description["paths"].values():
        body = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:  # so that more than the error for an unknown model is seen, and answers stay short
            fields = body["schema"]["properties"]
            fields["model"] = {"const": "emulated"}
            for name in {"max_tokens", "max_completion_tokens", "max_output_tokens"} & fields.keys():
                fields[name] = {"type": "integer", "minimum": 1, "maximum": 8}
                body["schema"]["required"].append(name)
    page = tmp_path / "openapi.json"
    page.write_text(json.dumps(description))
    ran = subprocess.run(
        [installed("schemathesis"), "run", str(page), "--url", mesh.url, "--checks", CHECKS, "--phases", "fuzzing",
         "--seed", "1",
         "--max-examples", "30", "--no-color"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:]
    assert f"Tested: {len(description['paths'])}" in ran.stdout
