"""Runs a command with a Docker engine, which is started if none is there.

PYTHONPATH=tools python3 -m engine docker-compose -f docker/compose.yml up
"""

from __future__ import annotations

import os
import subprocess
import sys

from engine.find import docker
from engine.private import EngineError


def main(command: list[str]) -> int:
    """Run the command.

    Returns:
        Its exit code.
    """
    if not command:
        print("usage: python3 -m engine COMMAND...", file=sys.stderr)
        return 2
    try:
        with docker() as environment:
            return subprocess.run(
                command, env=os.environ | environment, check=False
            ).returncode
    except EngineError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
