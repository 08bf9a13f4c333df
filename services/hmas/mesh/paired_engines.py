"""The engines of `hmas up --prefill --decode`: those for prompts, and those that read their KV and answer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hmas.mesh.options import MeshOptions
from hmas.worker.discovery.source import source_of

EMULATED = "emulated"  # in the place of a URL: an engine that the mesh starts
KV_TRANSFER = "nixl-pull"
CONNECTOR = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'  # of emulated engines
_TOGETHER = "--prefill and --decode go together: one engine computes a prompt, and another one answers"


def with_roles(options: MeshOptions, prefill: Sequence[str] | None, decode: Sequence[str] | None) -> MeshOptions:
    """Returns the options of a mesh that has these engines for prompts and these for answers, too: URLs, or `EMULATED`
    once for each that it shall start. Raises ValueError if that is impossible."""
    if not prefill and not decode:
        return options
    if not prefill or not decode:
        raise ValueError(_TOGETHER)
    if options.workers > 1:
        raise ValueError("one worker has the engines of --prefill and --decode: leave --workers out")
    named = [(url, role) for role, urls in (("prefill", prefill), ("decode", decode)) for url in urls]
    urls = [*options.engine_urls, *(url for url, _ in named)]
    if EMULATED in urls:
        if set(urls) != {EMULATED}:
            raise ValueError("the engines of a mesh are either all emulated or all given by URLs")
        return replace(options, emulated=len(named), emulated_roles=tuple(role for _, role in named))
    if source := next((url for url in urls if source_of(url) is not None), None):
        raise ValueError(f"--prefill and --decode take URLs; a file+ says itself which engine has which role: {source}")
    if twice := next((url for url in urls if urls.count(url) > 1), None):
        raise ValueError(f"the engine {twice} is named twice: give it once, by --engine, --prefill or --decode")
    return replace(options, engine_urls=tuple(urls), roles=dict(named))


def one_model(roles: Mapping[str, str], models: Mapping[str, str]) -> dict[str, str]:
    """Returns the model of each engine with a role: those that did not name theirs, in `models`, serve what the others
    do. Raises ValueError if two of them serve different models."""
    found = {models[url]: url for url in roles if url in models}
    if len(found) > 1:
        said = " and ".join(f"{url} serves {model}" for model, url in found.items())
        raise ValueError(f"the engines of --prefill and --decode must serve one model, but {said}")
    return {url: model for model in found for url in roles}


def split_rule(options: MeshOptions) -> str:
    """Returns when two engines serve a request, where engines have roles: what HMAS_SPLIT says, by default what keeps
    the most requests on time (docs/results/disaggregation.md)."""
    return options.setting("worker", "HMAS_SPLIT") or "auto"
