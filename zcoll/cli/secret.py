"""``zcoll secret``: make a secret for a group."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

import click

_BYTES = 32  # of randomness; 43 characters


@click.command("secret")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to FILE, which only you can read (mode 0600), and print nothing.",
)
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Replace FILE if it is there. Groups that use its secret need the new one.",
)
def secret(*, output: Path | None, force: bool) -> None:
    """Make a fresh secret.

    Give every replica of a group the same one, as ZCOLL_SECRET or in a file that
    ZCOLL_SECRET_FILE names:

    \b
        export ZCOLL_SECRET="$(zcoll secret)"
        zcoll secret -o ~/job.secret
    """  # noqa: D301 - click knows the character, not its escape
    made = secrets.token_urlsafe(_BYTES)
    if output is None:
        click.echo(made)
        return
    try:
        _write(output, made + "\n", replace=force)
    except FileExistsError:
        raise click.ClickException(
            f"{output} is there already: choose another file, or replace it by --force"
        ) from None
    except OSError as error:
        raise click.ClickException(
            f"{output} cannot be written: {error.strerror}"
        ) from error


def _write(path: Path, text: str, *, replace: bool) -> None:
    """Put a file in place that is whole, and private from its first moment."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, 0o600)  # a strange umask leaves less than that
            file.write(text)
        if replace:
            os.replace(name, path)
        else:
            os.link(name, path)  # unlike a renaming, it replaces nothing
    finally:
        Path(name).unlink(missing_ok=True)
