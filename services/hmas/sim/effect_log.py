"""One hash over every effect of every agent, in order."""

from hashlib import sha256


class EffectLog:
    """Computes the SHA-256 over one line `<time in s> <agent> <effect>` per effect. With `keep`, it also keeps the
    lines."""

    def __init__(self, keep: bool = False) -> None:
        self.count = 0
        self.lines: list[str] = []
        self._hash = sha256()
        self._keep = keep

    def add(self, now_s: float, agent: str, effect: object) -> None:
        line = f"{now_s!r} {agent} {effect!r}\n"
        self.count += 1
        self._hash.update(line.encode())
        if self._keep:
            self.lines.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()
