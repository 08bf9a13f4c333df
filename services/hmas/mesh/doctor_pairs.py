"""What `hmas doctor` checks of engines that hand KV over: each computes a prompt of a few words, and another one reads
it and answers, as requests do that two engines serve (docs/two-engines.md)."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from random import getrandbits
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from hmas.contracts.registry import SGLANG
from hmas.mesh.doctor import Finding
from hmas.mesh.up import card_of
from hmas.worker.adapters.engine_facts import EngineFacts, handing_of
from hmas.worker.settings import EngineSettings

ANSWER_S = 20.0  # the first hand-over between two engines connects them
MAX_BYTES = 2**20
ASKED = {"prompt": "a prompt that one engine computes and another one reads", "temperature": 0}
FIRST = {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
HERE = ("", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost")
CONNECTORS = {"nixl-pull": "NixlConnector", "nixl-push": "NixlPushConnector"}
READER = "both need the same model, data type, block size and version of NIXL, and open side channels"
UNREADABLE = (OSError, HTTPException, ValueError)


def hand_overs(engines: Sequence[EngineSettings], api_key: str) -> list[Finding]:
    """Returns a finding for each engine that may compute prompts for others."""
    handing = [each for each in engines if each.kv_transfer]
    versions = {each.url: _version(each, api_key) for each in handing}
    found = []
    for lends in (each for each in handing if each.role != "decode"):
        others = [each for each in handing if each is not lends and each.role != "prefill"]
        alike = [each for each in others if each.kv_transfer == lends.kv_transfer]
        mine = versions[lends.url]
        reads = next((each for each in alike if not mine or versions[each.url] in ("", mine)), None)
        check = f"KV of {lends.label}"
        if reads is not None:
            tried = _paired if lends.kv_transfer == SGLANG else _handed_over
            found.append(tried(check, lends, reads, api_key))
        elif alike:
            detail = f"it has {mine}, and {alike[0].label} has {versions[alike[0].url]}"
            found.append(Finding(check, "fail", detail, "give both the same version: the worker makes no pair of them"))
        elif others:
            detail = f"it is {lends.kv_transfer}, and {others[0].label} is {others[0].kv_transfer}: they are no pair"
            found.append(Finding(check, "fail", detail, "give both the same connector, and the same `kv_transfer`"))
        else:
            found.append(Finding(check, "warn", "nobody reads it", "give another engine the same `kv_transfer`"))
    return found


def _handed_over(check: str, lender: EngineSettings, reader: EngineSettings, api_key: str) -> Finding:
    lends, reads = lender.url, reader.url
    config = json.dumps({"kv_connector": CONNECTORS[lender.kv_transfer], "kv_role": "kv_both"})
    connector = f"start it with --kv-transfer-config '{config}', and nixl"
    try:
        body = ASKED | {"model": card_of(lends, api_key)["id"]}
        params = _asked(lends, body | FIRST, api_key).get("kv_transfer_params")
    except UNREADABLE as error:
        return Finding(check, "fail", f"it computes no prompt for another: {error}", connector)
    if not isinstance(params, dict) or not params:
        return Finding(check, "fail", "its answer does not say where the KV is", connector)
    mode = params.get("transfer_mode", "pull")  # older ones do not tell, and have no other
    if f"nixl-{mode}" != lender.kv_transfer:
        detail = f"its connector is one for {mode}, and its entry says {lender.kv_transfer}"
        return Finding(check, "fail", detail, f"set `kv_transfer` to nixl-{mode}, or {connector}")
    host, told = urlsplit(lends).hostname or "", str(params.get("remote_host", ""))
    if told in HERE and host not in HERE:
        advice = f"set VLLM_NIXL_SIDE_CHANNEL_HOST to an address of {host} that other engines reach"
        return Finding(check, "fail", f"it says that its KV is at {told or 'no host'}", advice)
    try:
        _asked(reads, body | {"max_tokens": 1, "kv_transfer_params": params}, api_key)
    except UNREADABLE as error:
        return Finding(check, "fail", f"{reads} cannot read it: {error}", READER)
    return Finding(check, "ok", f"{reads} reads it from {told}")


def _paired(check: str, lender: EngineSettings, reader: EngineSettings, api_key: str) -> Finding:
    """Asks both engines at once, as SGLang's are asked that are in a disaggregation mode."""
    servers = []
    for engine, role in ((lender, "prefill"), (reader, "decode")):
        facts = EngineFacts(name=engine.label, role=role, bootstrap_port=engine.bootstrap_port)
        server = _server_info(engine, api_key)
        mode = server.get("disaggregation_mode", role)
        if mode != role:
            advice = f"start it with --disaggregation-mode {role}"
            return Finding(check, "fail", f"{engine.label} is in mode {mode}, and is meant for {role}", advice)
        servers.append(handing_of(facts, server | {"disaggregation_mode": role}))
    port, host = servers[0].bootstrap_port, urlsplit(lender.endpoint).hostname or ""
    try:
        fields = {"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": getrandbits(63)}
        body = ASKED | {"model": card_of(lender.url, api_key)["id"], "max_tokens": 1} | fields
    except UNREADABLE as error:
        return Finding(check, "fail", f"it does not tell its model: {error}", "is it an SGLang engine?")
    failed = []
    with ThreadPoolExecutor(2) as both:
        answers = [(each, both.submit(_asked, each.url, body, api_key)) for each in (lender, reader)]
        for engine, answer in answers:
            try:
                answer.result()
            except UNREADABLE as error:
                failed.append(f"{engine.label}: {error}")
    if failed:
        advice = f"both need the same model and transfer backend, and {reader.label} must reach {host}:{port}"
        return Finding(check, "fail", "; ".join(failed), advice)
    return Finding(check, "ok", f"{reader.url} gets it by {host}:{port}")


def _version(engine: EngineSettings, api_key: str) -> str:
    """Returns in words what two engines must have in common; empty if it does not say."""
    if engine.kv_transfer == SGLANG:
        backend = _server_info(engine, api_key).get("disaggregation_transfer_backend")
        return f"the transfer backend {backend}" if backend else ""
    try:
        version = _get(engine.url, "/version", api_key).get("version")
    except UNREADABLE:
        return ""
    return f"version {version}" if version else ""


def _server_info(engine: EngineSettings, api_key: str) -> dict[str, Any]:
    """Returns what an SGLang engine says of itself; nothing if it does not answer, of which other checks tell."""
    try:
        return _get(engine.url, "/server_info", api_key)
    except UNREADABLE:
        return {}


def _asked(url: str, body: dict[str, Any], api_key: str) -> dict[str, Any]:
    """Raises OSError, HTTPException or ValueError without a JSON object as the answer."""
    return _answer(f"{url.rstrip('/')}/v1/completions", json.dumps(body).encode(), api_key)


def _get(url: str, path: str, api_key: str) -> dict[str, Any]:
    """Raises OSError, HTTPException or ValueError without a JSON object as the answer."""
    return _answer(f"{url.rstrip('/')}{path}", None, api_key)


def _answer(url: str, body: bytes | None, api_key: str) -> dict[str, Any]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})
    try:
        with urlopen(Request(url, body, headers), timeout=ANSWER_S) as reply:
            answer = json.loads(reply.read(MAX_BYTES))
    except HTTPError as error:
        raise ValueError(f"status {error.code}, {' '.join(error.read(300).decode(errors='replace').split())}") from None
    if not isinstance(answer, dict):
        raise ValueError("its answer is no JSON object")
    return answer
