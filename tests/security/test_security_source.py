"""S17, and what the source must not contain."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import zcoll

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(zcoll.__path__[0])
SOURCES = sorted(ROOT.rglob("*.py"))
PICKLERS = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "_pickle"}
RUNNERS = {"eval", "exec", "compile", "__import__"}
ONLY = ROOT / "codec.py"  # the one module that pickles
WRITES = {"write_bytes", "write_text", "open", "fdopen", "NamedTemporaryFile"}


def names(path: Path) -> Iterator[str]:
    """Every name, attribute and imported module of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_s17_one_module_pickles_and_writes_no_file(path: Path) -> None:
    found = set(names(path))
    assert not found & {"recv_pyobj", "send_pyobj", "recv_serialized"}
    tree = ast.walk(ast.parse(path.read_text()))
    assert not {node.id for node in tree if isinstance(node, ast.Name)} & RUNNERS
    if path == ONLY:
        assert not found & WRITES
        assert "pathlib" not in found
    else:
        assert not found & PICKLERS


def test_s17_nothing_is_loaded_from_a_file() -> None:
    """``codec`` reads from memory: its unpicklers get a ``BytesIO`` each."""
    calls = [
        node
        for node in ast.walk(ast.parse(ONLY.read_text()))
        if isinstance(node, ast.Call)
    ]
    made = [
        ast.unparse(call.args[0])
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in {"_Plain", "_Nameless"}
    ]
    assert made == ["io.BytesIO(data)"] * 2
    loads = [ast.unparse(call) for call in calls if "pickle.loads" in ast.unparse(call)]
    assert loads == ["pickle.loads(stream, buffers=rest)"]


def test_s17_the_linter_looks_for_such_things() -> None:
    path = ROOT.parent / "pyproject.toml"
    if not path.exists():
        pytest.skip("the tests run against an installed package")
    text = path.read_text()
    selected, _, rest = text.partition("select = [")[2].partition("]")
    assert '"S"' in selected
    assert '"S"' not in rest  # nowhere is the whole family ignored
    for name in "pickle", "cloudpickle", "zmq":
        assert f'"{name}".msg' in rest
