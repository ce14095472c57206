"""The Kubernetes file: against the schemas, and played through without a cluster."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from job import ROOT, clean_environment
from ports import tcp_port

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "docker" / "kubernetes.yaml").read_text())
)
SERVICE, JOB = DOCUMENTS
POD = JOB["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]

# Below these any names are allowed: labels, and kinds of resources.
FREE = {"selector", "labels", "requests", "limits"}
LATE = 10.0  # seconds after which rank 0's name resolves
LIMIT = 50.0


def check(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(
        document, kubernetes_validate.latest_version(), strict=True
    )


def test_it_follows_the_schemas() -> None:
    assert [document["kind"] for document in DOCUMENTS] == ["Service", "Job"]
    for document in DOCUMENTS:
        check(document)


def fields(part: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The paths to all fields whose names the schemas know."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield (*path, name)
            if name not in FREE:
                yield from fields(value, (*path, name))
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from fields(value, (*path, index))


PATHS = [
    (number, *path)
    for number, document in enumerate(DOCUMENTS)
    for path in fields(document, ())
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_a_misspelt_field_is_found(path: tuple[Any, ...]) -> None:
    documents = copy.deepcopy(DOCUMENTS)
    *way, name = path
    part: Any = documents
    for step in way:
        part = part[step]
    part[f"{name}s"] = part.pop(name)
    with pytest.raises(
        (
            kubernetes_validate.ValidationError,
            kubernetes_validate.InvalidSchemaError,
            kubernetes_validate.SchemaNotFoundError,
            KeyError,  # of a document without a kind
        )
    ):
        check(documents[path[0]])


def test_what_stands_in_several_places_agrees() -> None:
    spec = JOB["spec"]
    total = int(pod_environment(0)["ZCOLL_NUM_REPLICAS"])
    assert spec["completions"] == spec["parallelism"] == total
    labels = spec["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"].items() <= labels.items()
    # The name of the first pod, by the rules for indexed jobs with a subdomain.
    assert POD["subdomain"] == SERVICE["metadata"]["name"]
    first = f"{JOB['metadata']['name']}-0.{POD['subdomain']}"
    assert pod_environment(0)["ZCOLL_MASTER_ADDR"] == first
    port = int(pod_environment(0)["ZCOLL_MASTER_PORT"])
    assert [each["port"] for each in SERVICE["spec"]["ports"]] == [port]
    assert [each["containerPort"] for each in CONTAINER["ports"]] == [port]
    (mount,) = (m for m in CONTAINER["volumeMounts"] if m["name"] == "secret")
    assert pod_environment(0)["ZCOLL_SECRET_FILE"] == f"{mount['mountPath']}/secret"


def pod_environment(index: int) -> dict[str, str]:
    """The variables of a pod, as its node would set them."""
    known = {
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        "status.podIP": "127.0.0.1",
    }
    return {
        variable["name"]: variable.get("value")
        or known[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        for variable in CONTAINER["env"]
    }


def pod_arguments(environment: dict[str, str]) -> list[str]:
    """The container's arguments with the variables in them."""
    return [
        re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word)
        for word in CONTAINER["args"]
    ]


# Python runs this at its start: a name that is known once a file says where it is.
CLUSTER_DNS = """
import os, pathlib, socket

look_up = socket.getaddrinfo

def cluster_dns(host, *args, **kwargs):
    if host == os.environ["ZCOLL_MASTER_ADDR"]:
        with open(os.environ["TEST_ASKED"], "a") as asked:
            asked.write(os.environ["ZCOLL_REPLICA_RANK"] + "\\n")
        record = pathlib.Path(os.environ["TEST_RECORD"])
        if not record.exists():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        host = record.read_text()
    return look_up(host, *args, **kwargs)

socket.getaddrinfo = cluster_dns
"""


def test_rank_0s_name_may_resolve_late(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLUSTER_DNS)
    (tmp_path / "secret").write_text("a secret of the tests, long enough")
    (tmp_path / "job.py").write_text(
        "import zcoll\n"
        "with zcoll.connect(timeout=40) as comm:\n"
        "    print(comm.replica_rank, comm.allreduce([comm.replica_rank]))\n"
    )
    record, asked = tmp_path / "record", tmp_path / "asked"
    port, pods = tcp_port(), []
    began = time.monotonic()
    for index in range(JOB["spec"]["completions"]):
        environment = pod_environment(index) | {
            "ZCOLL_MASTER_PORT": str(port),
            "ZCOLL_SECRET_FILE": str(tmp_path / "secret"),
        }
        *options, _ = pod_arguments(environment)
        clean = clean_environment(TEST_RECORD=str(record), TEST_ASKED=str(asked))
        clean["PYTHONPATH"] = os.pathsep.join([str(tmp_path), clean["PYTHONPATH"]])
        pods.append(
            subprocess.Popen(
                [sys.executable, "-m", "zcoll", *options, str(tmp_path / "job.py")],
                env=clean | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        wait_until_all_have_asked(asked, {"1", "2", "3", "4"})
        time.sleep(max(0.0, began + LATE - time.monotonic()))  # the cluster is slow
        assert [pod.poll() for pod in pods] == [None] * 5
        record.write_text("127.0.0.1")
        for index, pod in enumerate(pods):
            output, _ = pod.communicate(timeout=LIMIT)
            assert (pod.returncode, output) == (
                0,
                f"[{index}] {index} [0, 1, 2, 3, 4]\n",
            )
    finally:
        for pod in pods:
            pod.kill()  # its replica ends with it
            pod.communicate()


def wait_until_all_have_asked(asked: Path, ranks: set[str]) -> None:
    """Wait until these ranks have asked for rank 0's name."""
    deadline = time.monotonic() + LIMIT
    while not asked.exists() or set(asked.read_text().split()) != ranks:
        assert time.monotonic() < deadline, "not everybody has asked for the name"
        time.sleep(0.05)
