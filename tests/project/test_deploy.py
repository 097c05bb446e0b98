"""The manifest for KubeRay fits KubeRay's schema, and its command exists.

The operator's own resource definition of `ray.io/v1` takes a megabyte, and no package has it. JOB
has its types, its formats (int32 as bounds), its patterns and its required fields, for the fields
that we use. Source: github.com/ray-project/kuberay, helm-chart/kuberay-operator/crds/
ray.io_rayjobs.yaml, commit 037e91b0e311e6240431a4dcb111fab341a6f613. It is stricter in some places:
no other fields, no empty texts, and the bounds that the operator itself checks.
"""

from __future__ import annotations

import re
from copy import deepcopy

import pytest
import yaml
from support.commands import pathe
from support.places import ROOT

jsonschema = pytest.importorskip("jsonschema")
TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}
FLAG = {"type": "boolean"}
NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
AMOUNTS = {  # of processors and memory: numbers would do, but 16 isn't 16Gi
    "type": "object",
    "additionalProperties": {
        "type": "string",
        "pattern": rf"^[+-]?{NUMBER}([KMGTPE]i|[numkMGTPE]|[eE][+-]?{NUMBER})?$",
    },
}
LABEL = "^[a-z]([-a-z0-9]*[a-z0-9])?$"  # DNS-1035


def record(needed: str, **fields):
    """An object with these fields and no others."""
    return {"type": "object", "required": needed.split(), "properties": fields,
            "additionalProperties": False}  # fmt: skip


def some(items):
    """A list with at least one item."""
    return {"type": "array", "minItems": 1, "items": items}


CONTAINER = record(
    "name", name=TEXT, image=TEXT,
    resources=record("", requests=AMOUNTS, limits=AMOUNTS),
    volumeMounts=some(record("mountPath name", name=TEXT, mountPath=TEXT, readOnly=FLAG)),
)  # fmt: skip
VOLUME = record(
    "name", name=TEXT,
    persistentVolumeClaim=record("claimName", claimName=TEXT, readOnly=FLAG),
)  # fmt: skip
TEMPLATE = record("", spec=record(
    "containers", containers=some(CONTAINER), volumes=some(VOLUME),
))  # fmt: skip
STARTED = {"type": "object", "additionalProperties": {"type": "string"}}
CLUSTER = record(
    "headGroupSpec", rayVersion=TEXT,
    headGroupSpec=record("rayStartParams template", rayStartParams=STARTED, template=TEMPLATE),
    workerGroupSpecs=some(record(
        "groupName maxReplicas minReplicas rayStartParams template", groupName=TEXT,
        replicas=COUNT, minReplicas=COUNT, maxReplicas=COUNT, rayStartParams=STARTED,
        template=TEMPLATE,
    )),
)  # fmt: skip
JOB = record(
    "apiVersion kind metadata spec", apiVersion={"const": "ray.io/v1"}, kind={"const": "RayJob"},
    metadata=record("name", name={"type": "string", "maxLength": 47, "pattern": LABEL}),
    spec=record(
        "", entrypoint=TEXT, shutdownAfterJobFinishes=FLAG,
        ttlSecondsAfterFinished=COUNT, backoffLimit=COUNT, rayClusterSpec=CLUSTER,
    ),
)  # fmt: skip
OF_CLUSTER = ("spec", "rayClusterSpec")
OF_HEAD = (*OF_CLUSTER, "headGroupSpec")
OF_WORKERS = (*OF_CLUSTER, "workerGroupSpecs", 0)
OF_CONTAINER = (*OF_WORKERS, "template", "spec", "containers", 0)
WRONG = {
    "a name that starts with a number": (("metadata", "name"), "2-embed"),
    "a long name": (("metadata", "name"), "e" * 48),
    "another version": (("apiVersion",), "ray.io/v1alpha1"),
    "a number of CPUs that isn't text": ((*OF_HEAD, "rayStartParams", "num-cpus"), 0),
    "a misspelt field": ((*OF_CLUSTER, "workerGroupSpec"), []),
    "no groups": ((*OF_CLUSTER, "workerGroupSpecs"), []),
    "replicas as text": ((*OF_WORKERS, "replicas"), "4"),
    "too many replicas": ((*OF_WORKERS, "maxReplicas"), 1 << 31),
    "no containers": ((*OF_WORKERS, "template", "spec", "containers"), []),
    "memory without a known unit": ((*OF_CONTAINER, "resources", "limits", "memory"), "128GB"),
    "a mount without a path": ((*OF_CONTAINER, "volumeMounts", 0), {"name": "graphs"}),
    "a time as text": (("spec", "ttlSecondsAfterFinished"), "600"),
    "a flag as text": (("spec", "shutdownAfterJobFinishes"), "yes"),
}  # what to change, and its value
NEEDED = [
    (*OF_CLUSTER, "headGroupSpec"), (*OF_HEAD, "rayStartParams"),
    (*OF_HEAD, "template"), (*OF_WORKERS, "groupName"), (*OF_WORKERS, "minReplicas"),
    (*OF_WORKERS, "maxReplicas"), (*OF_WORKERS, "rayStartParams"), (*OF_WORKERS, "template"),
    (*OF_CONTAINER, "name"), (*OF_CONTAINER, "volumeMounts", 0, "mountPath"),
    (*OF_WORKERS, "template", "spec", "containers"),
]  # fmt: skip


@pytest.fixture(scope="module")
def manifest():
    return yaml.safe_load((ROOT / "deploy" / "kuberay.yaml").read_text())


def parent(record, place):
    """The record or list that holds the last key of a place."""
    for key in place[:-1]:
        record = record[key]
    return record


def test_the_manifest_fits_the_schema(manifest):
    jsonschema.Draft202012Validator.check_schema(JOB)
    jsonschema.validate(manifest, JOB)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_found(manifest, what):
    (place, value), changed = WRONG[what], deepcopy(manifest)
    parent(changed, place)[place[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, JOB)


@pytest.mark.parametrize("place", NEEDED, ids=lambda place: ".".join(map(str, place[2:])))
def test_a_missing_field_is_found(manifest, place):
    changed = deepcopy(manifest)
    del parent(changed, place)[place[-1]]
    with pytest.raises(jsonschema.ValidationError, match="is a required property"):
        jsonschema.validate(changed, JOB)


def test_the_rules_that_the_operator_checks(manifest):
    """Volumes that are mounted exist, limits aren't below requests, time needs a shutdown."""
    cluster = manifest["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        spec = group["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["resources"]["requests"] == container["resources"]["limits"]
    assert manifest["spec"]["shutdownAfterJobFinishes"]  # the time after it counts only then
    names = [group["groupName"] for group in cluster["workerGroupSpecs"]]
    assert len(set(names)) == len(names)
    assert all(re.match(LABEL, name) for name in names)


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


def test_the_image_has_what_the_operator_needs():
    """Jobs are submitted through Ray's dashboard, and probes are calls of wget."""
    image = (ROOT / "deploy" / "ray.Dockerfile").read_text()
    assert re.search(r"apt-get install .*\bwget\b", image)
    assert '".[ray]" "ray[default]"' in image
    assert "deploy/ray.Dockerfile" in (ROOT / "deploy" / "kuberay.yaml").read_text()


def test_the_command_of_the_manifest_exists_and_uses_the_volume(manifest):
    program, command, *words = manifest["spec"]["entrypoint"].split()
    assert program == "pathe"
    shown = pathe(command, "--help", COLUMNS="300").stdout
    assert all(word in shown for word in words if word.startswith("--"))
    head = manifest["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    mounted = head["containers"][0]["volumeMounts"][0]["mountPath"]
    assert all(word.startswith(f"{mounted}/") for word in words if word.startswith("/"))
