"""``python -m zcoll``: the same as the ``zcoll`` command."""

from zcoll.cli import main

if __name__ == "__main__":
    main(prog_name="python -m zcoll")
