"""Which engines a gateway may use, and with which keys: its own configuration says so, never a heartbeat."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import orjson

LOOPBACK = "http://127.0.0.1:*,http://localhost:*,http://[::1]:*"


@dataclass(frozen=True, slots=True)
class EndpointRule:
    """Engines that may be used: those whose scheme://host:port `url` matches, in which `*` stands for any characters.
    `api_key_file` holds their API key; None: they get the common one."""

    url: str
    api_key_file: Path | None = None


def parse_rules(text: str) -> tuple[EndpointRule, ...]:
    """Returns the rules in a setting: patterns separated by commas, or a JSON list of {"url", "api_key_file"}.

    Raises ValueError, which says what is expected.
    """
    if not text.lstrip().startswith("["):
        rules = tuple(EndpointRule(_pattern(part.strip())) for part in text.split(",") if part.strip())
    else:
        try:
            entries = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error}") from None
        rules = tuple(_rule(entry) for entry in entries)
    if not rules:
        raise ValueError("it names no engine: give at least one pattern such as http://10.0.0.*:8000")
    return rules


def _rule(entry: object) -> EndpointRule:
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str) or entry.keys() - {"url", "api_key_file"}:
        raise ValueError('each entry must be {"url": PATTERN} or {"url": PATTERN, "api_key_file": PATH}')
    key_file = entry.get("api_key_file")
    if key_file is not None and not isinstance(key_file, str):
        raise ValueError('"api_key_file" must be the path of a file')
    return EndpointRule(_pattern(entry["url"]), Path(key_file) if key_file else None)


def _pattern(url: str) -> str:
    """Returns a pattern with its port: that of the scheme if it names none."""
    found = re.fullmatch(r"(\*|https?)://([A-Za-z0-9.*_-]+|\[[0-9A-Fa-f:.*]+\])(?::(\d+|\*))?/?", url)
    if found is None:
        raise ValueError(
            "one of them is not a pattern of URLs: write each like http://10.0.0.*:8000 or http://engine-*.example:*"
        )
    scheme, host, port = found.groups()
    return f"{scheme}://{host.lower()}:{port or (443 if scheme == 'https' else 80)}"


@dataclass(frozen=True, slots=True)
class _Allowed:
    match: re.Pattern[str]
    key: str = field(repr=False)


class AllowedEndpoints:
    """The rules with their keys. Raises OSError if a key's file cannot be read."""

    def __init__(self, rules: tuple[EndpointRule, ...], api_key_file: Path | None = None) -> None:
        common = _key(api_key_file) if api_key_file is not None else ""
        self._allowed = [
            _Allowed(_matching(rule.url), common if rule.api_key_file is None else _key(rule.api_key_file))
            for rule in rules
        ]

    def key_of(self, origin: str) -> str | None:
        """Returns the API key for an engine at `origin` (scheme://host:port) by the first rule that matches, "" if it
        needs none; None if the engine may not be used."""
        return next((each.key for each in self._allowed if each.match.fullmatch(origin)), None)


def _matching(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _key(path: Path) -> str:
    return path.read_text().strip()
