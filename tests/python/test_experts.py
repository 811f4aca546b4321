#!/usr/bin/python3
"""The Python client over experts, against a real gemmd."""

import subprocess
import unittest

import numpy as np
from support import BUILD, Daemon, random, write_safetensors

import gemmclient
from gemmclient import experts

E, F, K, T, M = 5, 48, 64, 2, 7


def silu(v):
    return v / (1 + np.exp(-v))


class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.session = gemmclient.connect(cls.daemon.socket)
        cls.addClassCleanup(cls.session.close)
        cls.up = random(1, E * 2 * F, K).reshape(E, 2 * F, K).astype(np.float16)
        cls.down = random(2, E * K, F).reshape(E, K, F).astype(np.float16)
        cls.session.load_array(cls.up, name="up", format="f16")
        cls.session.load_array(cls.down, name="down", format="f16")
        cls.x = random(3, M, K).astype(np.float16)
        cls.ids = np.array([[0, 4], [1, 1], [-1, 2], [3, 5], [4, 0], [2, 3], [0, 1]], np.int32)
        cls.routing = np.abs(random(4, M, T)).astype(np.float32)

    def right(self, x, routing, layer):
        """Pairs, [M, T, n], and their sum, in float64."""
        pairs = []
        for i, row in enumerate(self.ids):
            for t, e in enumerate(row):
                source = x[i] if x.ndim == 2 else x[i, t]
                v = np.zeros(2 * F if not layer else K)
                if 0 <= e < E:
                    v = self.up[e].astype(np.float64) @ source
                    if layer:
                        v = self.down[e].astype(np.float64) @ (silu(v[:F]) * v[F:])
                pairs.append(v)
        pairs = np.array(pairs).reshape(M, T, -1)
        weights = routing if routing is not None else np.ones((M, T))
        return pairs, (pairs * weights[..., None]).sum(1)

    def near(self, y, right, most):
        self.assertEqual(y.shape, right.shape)
        self.assertLess(np.linalg.norm(y - right) / np.linalg.norm(right), most)

    def test_info(self):
        info = self.session.stat("up")
        self.assertEqual((info.experts, info.n, info.k), (E, 2 * F, K))

    def test_products(self):
        with self.session.open("up") as weight:
            pending = experts.submit(weight, self.x, self.ids, sum=False, y_type="f32")
            pairs, total = self.right(self.x, self.routing, False)
            self.near(pending.wait(), pairs, 1e-3)
            self.assertEqual(pending.skipped, 2)
            self.near(experts.matmul(weight, self.x, self.ids, self.routing, y_type="f32"), total, 1e-3)
            each = np.repeat(self.x[:, None], T, 1)
            self.near(experts.matmul(weight, each, self.ids, sum=False, x_pairs=True, y_type="f32"), pairs, 1e-3)

    def test_layer(self):
        with self.session.open("up") as up, self.session.open("down") as down:
            plan = experts.Plan(self.session, [experts.Step(up, "f16", "silu", True), experts.Step(down, "f32")])
            pairs, total = self.right(self.x, self.routing, True)
            self.near(plan.run(self.x, self.ids, self.routing), total, 5e-3)
            self.near(plan.run(self.x, self.ids, sum=False), pairs, 5e-3)
            self.near(plan.run(self.x, self.ids), self.right(self.x, None, True)[1], 5e-3)
            out = self.session.empty((M, K), np.float32)
            self.assertIs(plan.run(self.x, self.ids, self.routing, out=out), out)
            self.near(out, total, 5e-3)
            del plan

    def test_refused(self):
        with self.session.open("up") as up, self.session.open("down") as down:
            with self.assertRaisesRegex(gemmclient.InvalidError, "ids must be int32"):
                experts.matmul(up, self.x, self.ids.astype(np.int64))
            with self.assertRaisesRegex(gemmclient.InvalidError, "x must have shape"):
                experts.matmul(up, self.x[:3], self.ids)
            with self.assertRaisesRegex(gemmclient.InvalidError, "routing must be float32"):
                experts.matmul(up, self.x, self.ids, self.routing.astype(np.float64))
            with self.assertRaisesRegex(gemmclient.InvalidError, "T must be 1..5, got 0"):
                up.matmul(self.x)
            with self.assertRaisesRegex(gemmclient.InvalidError, "step 1: K must be"):
                experts.Plan(self.session, [experts.Step(down, "f16"), experts.Step(down, "f16")])

    def test_stacked_and_part(self):
        info = self.session.load_array(self.up, name="part", format="int8", experts=2, expert=3)
        self.assertEqual(info.experts, 2)
        with self.assertRaises(gemmclient.NotFoundError):
            self.session.load_array(self.up, name="none", format="int8", experts=E + 1)
        self.session.unload("part")

    def model(self, name, leave_out=()):
        """A checkpoint of two layers with a tensor an expert, bf16 as torch has it; experts[layer][which] as stacked."""
        path = self.daemon.folder / f"{name}.safetensors"
        tensors, stacked = {}, {}
        for layer in range(2):
            for i, (which, n, k) in enumerate((("gate_proj", F, K), ("up_proj", F, K), ("down_proj", K, F))):
                values = random(10 * layer + i, 12 * n, k).reshape(12, n, k).astype(np.float16)
                stacked[layer, which] = values
                for e in range(12):
                    text = f"model.layers.{layer}.mlp.experts.{e}.{which}.weight"
                    if text not in leave_out:
                        tensors[text] = ("F16", values[e])
        tensors["model.norm.weight"] = ("F16", np.ones(K, np.float16))
        tensors["lm_head.weight"] = ("F16", self.up[0])
        write_safetensors(path, tensors)
        return path, stacked

    def load(self, path, **options):
        return self.session.load_model(
            path, format="int8", fuse=["gate_proj,up_proj=gate_up_proj"], join_experts=True, **options
        )

    def test_whole_models(self):
        path, stacked = self.model("whole")
        result = self.load(path, prefix="whole.")
        names = [f"whole.model.layers.{i}.mlp.experts.{one}.weight" for i in (0, 1) for one in ("down_proj", "gate_up_proj")]
        self.assertEqual(result.names, ["whole.lm_head.weight"] + names)
        for layer in range(2):
            fused = np.concatenate([stacked[layer, "gate_proj"], stacked[layer, "up_proj"]], 1)
            for one, values in (("gate_up_proj", fused), ("down_proj", stacked[layer, "down_proj"])):
                info = self.session.stat(f"whole.model.layers.{layer}.mlp.experts.{one}.weight")
                self.assertEqual((info.experts, info.n, info.k), values.shape)
                same = self.session.load_array(values, name="same", format="int8", replace=True)
                self.assertTrue(same.shared)
                self.assertEqual(same.hash, info.hash)
                self.session.unload("same")

    def test_ranks(self):
        path, stacked = self.model("ranks")
        self.load(path, prefix="r1.", rank=1, ranks=3, split_experts=True, exclude=["lm_head*"])
        self.load(path, prefix="p1.", rank=1, ranks=2)
        down, fused = stacked[0, "down_proj"], np.concatenate([stacked[0, "gate_proj"], stacked[0, "up_proj"]], 1)
        half = np.concatenate([stacked[0, "gate_proj"][:, F // 2 :], stacked[0, "up_proj"][:, F // 2 :]], 1)
        for name, values in (("r1.", fused[4:8]), ("p1.", half)):
            same = self.session.load_array(values, name="same", format="int8", replace=True)
            self.assertEqual(same.hash, self.session.stat(f"{name}model.layers.0.mlp.experts.gate_up_proj.weight").hash)
        same = self.session.load_array(down[:, :, F // 2 :], name="same", format="int8", replace=True)
        self.assertEqual(same.hash, self.session.stat("p1.model.layers.0.mlp.experts.down_proj.weight").hash)
        self.session.unload("same")
        with self.assertRaisesRegex(gemmclient.UnsupportedError, "has 12 experts, which 5 ranks cannot share"):
            self.load(path, prefix="no.", rank=0, ranks=5, split_experts=True)

    def test_export(self):
        """What is written is loaded again as it was, all formats, one by one without joining."""
        formats = (("int8", "row"), ("int8", "one"), ("fp8", "row"), ("fp8", "block"), ("int2", "group"), ("int4", "group64-zeros"), ("mxfp4", "group32"), ("bf16", 0))
        values = random(5, E * 130, 260).reshape(E, 130, 260)
        before, folder = {}, self.daemon.folder / "export"
        for format, scale in formats:
            name = f"x.experts.{format}{scale}.weight"
            before[name] = self.session.load_array(values, name=name, format=format, scale=scale)
        folder.mkdir()
        ctl = [BUILD / "gemmctl", "--socket", self.daemon.socket, "export"]
        subprocess.run([*ctl, "x.experts.*", folder / "all.safetensors"], check=True, stdout=subprocess.DEVNULL)
        for name in before:
            self.session.unload(name)
        loaded = self.session.load_model(folder / "all.safetensors", format="stored", join_experts=True)
        self.assertEqual(sorted(loaded.names), sorted(before))
        for name, was in before.items():
            now = self.session.stat(name)
            self.assertEqual((now.hash, now.experts, now.format, now.scale), (was.hash, E, was.format, was.scale))
            self.session.unload(name)
        self.session.load_model(folder / "all.safetensors", format="stored", patterns=["*int8row*"])
        names = [info.name for info in self.session.weights("x.experts.*")]
        self.assertEqual(sorted(names), [f"x.experts.{e}.int8row.weight" for e in range(E)])
        for name in names:
            self.session.unload(name)
        self.session.load_array(self.up, name="numberless", format="int8")
        refused = subprocess.run([*ctl, "numberless", folder / "no.safetensors"], capture_output=True, text=True)
        self.session.unload("numberless")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("has experts, and its name has no", refused.stderr)
        self.assertEqual([path.name for path in folder.iterdir()], ["all.safetensors"])

    def test_models_refused(self):
        path, _ = self.model("missing", ["model.layers.1.mlp.experts.7.down_proj.weight"])
        with self.assertRaisesRegex(gemmclient.NotFoundError, "expert 7 of .*layers.1.mlp.experts.{}.down_proj"):
            self.load(path, prefix="no.")
        with self.assertRaisesRegex(gemmclient.NotFoundError, "no weight of the model is an expert"):
            self.session.load_model(path, format="int8", patterns=["lm_head*"], join_experts=True, prefix="no.")
        with self.assertRaisesRegex(gemmclient.InvalidError, "of which there are none"):
            self.load(path, prefix="no.", split_experts=True)
        self.assertEqual(self.session.weights("no.*"), [])


if __name__ == "__main__":
    unittest.main()
