# SPDX-License-Identifier: MIT OR Apache-2.0
"""The DaemonSet against Kubernetes' own schemas, which its validator brings, and against what else it must agree with."""

import copy
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# The newest that the validator knows, and the oldest that is still maintained with it.
VERSIONS = ["1.34.1", "1.32.0"]


def manifests():
    return list(yaml.safe_load_all((HERE / "daemonset.yaml").read_text()))


def daemonset():
    return next(m for m in manifests() if m["kind"] == "DaemonSet")


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_the_schemas(version):
    for manifest in manifests():
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize(
    ("key", "value"), [("hostNetwork", "yes, please"), ("hostNetworks", True)]
)
def test_wrong_type_and_unknown_key_are_found(key, value):
    wrong = copy.deepcopy(daemonset())
    wrong["spec"]["template"]["spec"][key] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_agent_has_the_unit_s_capabilities_and_no_others():
    unit = (HERE.parent / "bestbyd.service").read_text()
    bounding = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)[1].split()
    (container,) = daemonset()["spec"]["template"]["spec"]["containers"]
    capabilities = container["securityContext"]["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    assert sorted(f"CAP_{c}" for c in capabilities["add"]) == sorted(bounding)


def test_image_is_the_workspace_s_version():
    version = re.search(
        r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE
    )
    (container,) = daemonset()["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"bestby:{version[1]}"


def test_configuration_is_one_that_bestby_accepts(tmp_path):
    config = next(m for m in manifests() if m["kind"] == "ConfigMap")["data"]
    path = tmp_path / "bestby.toml"
    path.write_text(config["bestby.toml"])
    bestby = ROOT / "target/debug/bestby"
    done = subprocess.run(
        [bestby, "config", "check", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_mount_has_its_volume():
    pod = daemonset()["spec"]["template"]["spec"]
    mounts = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
    assert mounts == {v["name"] for v in pod["volumes"]}


def test_entrypoint_is_where_the_package_puts_it():
    recipe = (HERE / "Containerfile").read_text()
    entry = re.search(r'^ENTRYPOINT \["(.*)"\]$', recipe, re.MULTILINE)[1]
    assert f"debian/bestby{entry}\n" in (HERE.parent / "debian/rules").read_text()
