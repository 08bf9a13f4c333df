"""What `hmas doctor` checks of engines that hand KV over: each computes a prompt of a few words, and another one reads
it and answers, as requests do that two engines serve (docs/two-engines.md)."""

import json
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from hmas.mesh.doctor import Finding
from hmas.mesh.up import card_of
from hmas.worker.settings import EngineSettings

ANSWER_S = 20.0  # the first hand-over between two engines connects them
MAX_BYTES = 2**20
ASKED = {"prompt": "a prompt that one engine computes and another one reads", "temperature": 0}
FIRST = {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
HERE = ("", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost")
CONNECTOR = 'start it with --kv-transfer-config \'{"kv_connector": "NixlConnector", "kv_role": "kv_both"}\', and nixl'
READER = "both need the same model, data type, block size and version of NIXL, and open side channels"


def hand_overs(engines: Sequence[EngineSettings], api_key: str) -> list[Finding]:
    """Returns a finding for each engine that may compute prompts for others."""
    handing = [each for each in engines if each.kv_transfer]
    found = []
    for lends in (each for each in handing if each.role != "decode"):
        others = (each for each in handing if each is not lends and each.kv_transfer == lends.kv_transfer)
        reads = next((each for each in others if each.role != "prefill"), None)
        check = f"KV of {lends.label}"
        if reads is None:
            found.append(Finding(check, "warn", "nobody reads it", "give another engine the same `kv_transfer`"))
        else:
            found.append(_handed_over(check, lends.url, reads.url, api_key))
    return found


def _handed_over(check: str, lends: str, reads: str, api_key: str) -> Finding:
    try:
        body = ASKED | {"model": card_of(lends, api_key)["id"]}
        params = _asked(lends, body | FIRST, api_key).get("kv_transfer_params")
    except (OSError, HTTPException, ValueError) as error:
        return Finding(check, "fail", f"it computes no prompt for another: {error}", CONNECTOR)
    if not isinstance(params, dict) or not params:
        return Finding(check, "fail", "its answer does not say where the KV is", CONNECTOR)
    host, told = urlsplit(lends).hostname or "", str(params.get("remote_host", ""))
    if told in HERE and host not in HERE:
        advice = f"set VLLM_NIXL_SIDE_CHANNEL_HOST to an address of {host} that other engines reach"
        return Finding(check, "fail", f"it says that its KV is at {told or 'no host'}", advice)
    try:
        _asked(reads, body | {"max_tokens": 1, "kv_transfer_params": params}, api_key)
    except (OSError, HTTPException, ValueError) as error:
        return Finding(check, "fail", f"{reads} cannot read it: {error}", READER)
    return Finding(check, "ok", f"{reads} reads it from {told}")


def _asked(url: str, body: dict[str, Any], api_key: str) -> dict[str, Any]:
    """Raises OSError, HTTPException or ValueError without a JSON object as the answer."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})
    request = Request(f"{url.rstrip('/')}/v1/completions", json.dumps(body).encode(), headers)
    try:
        with urlopen(request, timeout=ANSWER_S) as reply:
            answer = json.loads(reply.read(MAX_BYTES))
    except HTTPError as error:
        raise ValueError(f"status {error.code}, {' '.join(error.read(300).decode(errors='replace').split())}") from None
    if not isinstance(answer, dict):
        raise ValueError("its answer is no JSON object")
    return answer
