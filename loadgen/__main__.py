"""`python -m loadgen`."""

from loadgen.cli import app

if __name__ == "__main__":
    app(prog_name="loadgen")
