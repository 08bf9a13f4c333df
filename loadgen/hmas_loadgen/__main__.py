"""`python -m hmas_loadgen`."""

from hmas_loadgen.cli import app

if __name__ == "__main__":
    app(prog_name="hmas_loadgen")
