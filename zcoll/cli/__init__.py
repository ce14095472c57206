"""The ``zcoll`` command.

Each subcommand lives in a module of its own, which is imported only when that
subcommand is used: ``zcoll --help`` stays fast, and a subcommand cannot break
another one.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click


class _Entry(NamedTuple):
    """Where a subcommand is, and what the list of subcommands says of it."""

    module: str
    attribute: str
    summary: str


_SUBCOMMANDS = {
    "ping": _Entry(
        "zcoll.cli.ping",
        "ping",
        "Ask a running group whether it is reachable and complete.",
    ),
    "run": _Entry(
        "zcoll.cli.run",
        "run",
        "Start a job of several replicas on this machine.",
    ),
    "secret": _Entry(
        "zcoll.cli.secret",
        "secret",
        "Make a secret for a group.",
    ),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is used, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the subcommands."""
        return sorted(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        entry = _SUBCOMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}.{entry.attribute} is no click command")
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the subcommands without importing any."""
        rows = [(name, _SUBCOMMANDS[name].summary) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata  # noqa: PLC0415 - slow, and seldom needed

    try:
        version = metadata.version("zcoll")
    except metadata.PackageNotFoundError:
        version = "(version unknown: the package is not installed)"
    click.echo(f"zcoll {version}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="'zcoll COMMAND --help' tells more about a command.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Collective calls on Python objects between the processes of a job.

    zcoll lets several copies of a Python program (the replicas of a job) work
    together: each calls functions such as zcoll.allreduce(value), and all of
    them get the combined result.

    Start four replicas of a script on this machine:

    \b
        zcoll run -n 4 train.py

    Look whether a group is up, from another terminal or host:

    \b
        zcoll ping HOST:PORT
    """  # noqa: D301 - click knows the character, not its escape
