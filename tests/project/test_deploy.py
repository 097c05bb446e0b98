"""The manifest for KubeRay has the fields that KubeRay documents, and a command that exists.

The operator's own schema isn't part of a Python package, so this is a small one of the documented
fields that we use.
"""

from __future__ import annotations

import re

import pytest
import yaml
from support.commands import pathe
from support.places import ROOT

jsonschema = pytest.importorskip("jsonschema")
TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
AMOUNTS = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": r"^\d+(m|Mi|Gi|Ti)?$"},
}


def record(needed: str, **fields):
    """An object with these fields and no others."""
    return {"type": "object", "required": needed.split(), "properties": fields,
            "additionalProperties": False}  # fmt: skip


CONTAINER = record(
    "name image resources", name=TEXT, image=TEXT,
    resources=record("requests limits", requests=AMOUNTS, limits=AMOUNTS),
    volumeMounts={"type": "array", "items": record("name mountPath", name=TEXT, mountPath=TEXT)},
)  # fmt: skip
VOLUME = record(
    "name persistentVolumeClaim", name=TEXT,
    persistentVolumeClaim=record("claimName", claimName=TEXT),
)  # fmt: skip
TEMPLATE = record("spec", spec=record(
    "containers", containers={"type": "array", "minItems": 1, "items": CONTAINER},
    volumes={"type": "array", "items": VOLUME},
))  # fmt: skip
STARTED = {"type": "object", "additionalProperties": {"type": "string"}}
CLUSTER = record(
    "rayVersion headGroupSpec workerGroupSpecs", rayVersion=TEXT,
    headGroupSpec=record("template", rayStartParams=STARTED, template=TEMPLATE),
    workerGroupSpecs={"type": "array", "minItems": 1, "items": record(
        "groupName replicas minReplicas maxReplicas template", groupName=TEXT, replicas=COUNT,
        minReplicas=COUNT, maxReplicas=COUNT, rayStartParams=STARTED, template=TEMPLATE,
    )},
)  # fmt: skip
JOB = record(
    "apiVersion kind metadata spec", apiVersion={"const": "ray.io/v1"}, kind={"const": "RayJob"},
    metadata=record("name", name={"type": "string", "pattern": "^[a-z0-9-]{1,47}$"}),
    spec=record(
        "entrypoint rayClusterSpec", entrypoint=TEXT, shutdownAfterJobFinishes={"type": "boolean"},
        ttlSecondsAfterFinished=COUNT, backoffLimit=COUNT, rayClusterSpec=CLUSTER,
    ),
)  # fmt: skip


@pytest.fixture
def manifest():
    return yaml.safe_load((ROOT / "deploy" / "kuberay.yaml").read_text())


def test_the_manifest_has_the_documented_fields(manifest):
    jsonschema.validate(manifest, JOB)
    manifest["spec"]["rayClusterSpec"]["workerGroupSpec"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, JOB)


def test_nodes_see_the_same_graph_with_the_same_ray(manifest):
    cluster = manifest["spec"]["rayClusterSpec"]
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert cluster["rayVersion"] == pinned.group(1)
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    specs = [group["template"]["spec"] for group in groups]
    assert all(spec["volumes"] == specs[0]["volumes"] for spec in specs)
    mounts = [spec["containers"][0]["volumeMounts"] for spec in specs]
    assert all(mount == mounts[0] for mount in mounts)
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_the_command_of_the_manifest_exists(manifest):
    program, command, *words = manifest["spec"]["entrypoint"].split()
    assert program == "pathe"
    shown = pathe(command, "--help", COLUMNS="300").stdout
    assert all(word in shown for word in words if word.startswith("--"))
