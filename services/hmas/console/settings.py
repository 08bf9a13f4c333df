"""Settings of the console, read once at its start."""

from pathlib import Path

from pydantic import Field

from hmas.runtime.extras import CannotStart
from hmas.runtime.security import on_loopback
from hmas.runtime.settings import RuntimeSettings, token_in


class ConsoleSettings(RuntimeSettings):
    """Where the console listens, and who may read and who may act."""

    console_host: str = Field(
        "127.0.0.1",
        description="Address on which the console listens; beyond the loopback it needs a token for readers",
    )
    console_port: int = Field(8090, ge=0, le=65535, description="Port of the console; 0 picks a free one")
    console_names: str = Field(
        "",
        description="Names, separated by commas, under which browsers reach the console, beside localhost and the "
        "loopback's addresses: it refuses others, so that a foreign page cannot reach it by a name of its own",
    )
    console_token_file: Path | None = Field(
        None, description="File with the token that readers give once; unset: everybody who reaches the port may read"
    )
    console_admin_token_file: Path | None = Field(
        None,
        description="File with the token that pinning a topology and a what-if take; unset: the console only shows",
    )

    rehearsal_profile: str = Field(
        "",
        description="Profile of the engines that rehearsals simulate: a name, or a file of `hmas calibrate`; empty: "
        "fitted to their measured pace",
    )

    def reading_token(self) -> str:
        """Returns the readers' token, empty if there is none. Raises CannotStart if other machines could read without
        one, or if the file is empty, and OSError if it cannot be read."""
        token = token_in(self.console_token_file)
        if not token and not on_loopback(self.console_host):
            raise CannotStart(
                f"the console would show the mesh to everybody who reaches {self.console_host}: set "
                "HMAS_CONSOLE_TOKEN_FILE, or HMAS_CONSOLE_HOST=127.0.0.1"
            )
        return token

    def admin_token(self) -> str:
        """Returns the token for acting, empty if nobody may. Raises CannotStart or OSError as `reading_token` does."""
        token = token_in(self.console_admin_token_file)
        if token and token == token_in(self.console_token_file):
            raise CannotStart(
                "readers and admins have the same token: give HMAS_CONSOLE_ADMIN_TOKEN_FILE one of its own"
            )
        return token

    def names(self) -> frozenset[str]:
        """Returns the host names of the console, in lower case."""
        return frozenset(name.strip().lower() for name in self.console_names.split(",") if name.strip())
