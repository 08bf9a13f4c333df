"""`python -m hmas_loadgen` starts the commands of `hmas load`."""

from hmas_loadgen.cli import app

if __name__ == "__main__":
    app(prog_name="hmas_loadgen")
