#!/usr/bin/python3
"""deploy/kubernetes: every object by Kubernetes' own schemas (PyPI's kubernetes-validate), and what the page promises of
them."""

import re
import unittest

from support import ROOT

try:
    import kubernetes_validate
    import yaml
except ImportError as error:
    raise SystemExit(f"test_kubernetes.py needs kubernetes-validate ({error}); make test-kubernetes brings it") from None

FOLDER = ROOT / "deploy/kubernetes"
OBJECTS = {file.name: list(yaml.safe_load_all(file.read_text())) for file in sorted(FOLDER.glob("*.yaml"))}
SERVED = {one["kind"]: one for one in OBJECTS["gemmd.yaml"]}
POD = SERVED["DaemonSet"]["spec"]["template"]["spec"]
EXAMPLE = OBJECTS["example.yaml"][0]["spec"]
CONF = dict(re.findall(r"^(\w+) = (.*)$", SERVED["ConfigMap"]["data"]["gemmd.conf"], flags=re.M))


def container(name):
    return next(one for one in POD["containers"] if one["name"] == name)


def mounts(pod, one):
    """Where a container sees which folder of the node."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    return {mount["mountPath"]: paths[mount["name"]] for mount in one["volumeMounts"] if mount["name"] in paths}


class Kubernetes(unittest.TestCase):
    def test_every_object_is_what_its_schema_says(self):
        for name, objects in OBJECTS.items():
            for one in objects:
                with self.subTest(f"{name}: {one['kind']}"):
                    kubernetes_validate.validate(one, "1.31", strict=True)

    def test_a_wrong_object_is_found(self):
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**OBJECTS["example.yaml"][0], "spec": {"containers": "none"}}, "1.31", strict=True)

    def test_options_are_gemmds(self):
        known = re.findall(r"^#(\w+) =", (ROOT / "deploy/gemmd.conf").read_text(), flags=re.M)
        self.assertEqual([name for name in CONF if name not in known], [])

    def test_the_example_finds_the_socket_and_belongs_to_the_group(self):
        folder = CONF["socket"].rpartition("/")[0]
        host = mounts(POD, container("gemmd"))[folder]
        self.assertEqual(mounts(EXAMPLE, EXAMPLE["containers"][0]), {"/run/gemmd": host})
        self.assertEqual(folder, "/run/gemmd")  # where libgemmclient looks
        self.assertIn(int(CONF["use_group"]), EXAMPLE["securityContext"]["supplementalGroups"])
        self.assertEqual(CONF["direct"], CONF["use_group"])

    def test_no_pod_has_privileges(self):
        for pod in (POD, EXAMPLE):
            self.assertEqual({"hostIPC", "hostPID", "hostNetwork"} & set(pod), set())
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            for one in pod["containers"]:
                context = one["securityContext"]
                self.assertFalse(context["allowPrivilegeEscalation"])
                self.assertTrue(context["readOnlyRootFilesystem"])
                self.assertEqual(context["capabilities"], {"drop": ["ALL"]})

    def test_probes(self):
        gemmd = container("gemmd")
        self.assertEqual(gemmd["readinessProbe"]["exec"]["command"], ["/usr/bin/gemmctl", "ping", "--deep"])
        self.assertEqual(gemmd["livenessProbe"]["exec"]["command"], ["/usr/bin/gemmctl", "ping"])

    def test_all_containers_have_one_image_of_this_version(self):
        version = re.search(r"^VERSION := (.*)$", (ROOT / "Makefile").read_text(), flags=re.M).group(1)
        images = {one["image"] for one in POD["containers"] + POD["initContainers"] + EXAMPLE["containers"]}
        self.assertEqual(images, {f"localhost/gemmd:{version}"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
