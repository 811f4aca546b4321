#!/usr/bin/python3
"""Which tensors of a checkpoint are gemmd's under `--load-format gemmd`, what they are called, and by which calls they
are loaded; and that gemmd's library makes those very names of a real file."""

import os
import re
import tempfile
import unittest
from pathlib import Path

from support import Daemon, random, write_safetensors

import gemmclient
from gemmclient._vllm_plan import Layer, plan, prefix_of

PARENT = "model.layers.0"
QKV = Layer(f"{PARENT}.attn.qkv_proj", ("q_proj", "k_proj", "v_proj"))
DOWN = Layer(f"{PARENT}.mlp.down_proj", ("down_proj",), by_columns=True)
TENSORS = [
    "model.embed_tokens.weight", f"{PARENT}.norm.weight", f"{PARENT}.attn.q_proj.weight", f"{PARENT}.attn.q_proj.bias",
    f"{PARENT}.attn.k_proj.weight", f"{PARENT}.attn.k_proj.k_scale", f"{PARENT}.attn.v_proj.weight",
    f"{PARENT}.mlp.down_proj.weight", f"{PARENT}.mlp.down_proj.weight_scale",
]  # fmt: skip


def same(name):
    return name


def of_rank(layer, rank, ranks):
    return Layer(layer.path, layer.parts, layer.by_columns, rank, ranks)


class Names(unittest.TestCase):
    def test_a_fused_layer_is_one_weight(self):
        made = plan([QKV, DOWN], TENSORS, "llama.", same)
        self.assertEqual(made.names[QKV.path], f"llama.{QKV.path}.weight")
        self.assertEqual(made.names[DOWN.path], f"llama.{DOWN.path}.weight")
        [load] = made.loads
        self.assertEqual((load.prefix, load.ranks), ("llama.", 0))
        self.assertEqual(load.fuse, ["q_proj,k_proj,v_proj=qkv_proj"])
        self.assertEqual(len(load.patterns), 4)

    def test_what_the_engine_still_reads(self):
        made = plan([QKV, DOWN], TENSORS, "", same)
        self.assertEqual([name for name in TENSORS if not made.taken(name)], [
            "model.embed_tokens.weight", f"{PARENT}.norm.weight", f"{PARENT}.attn.q_proj.bias",
            f"{PARENT}.attn.k_proj.k_scale",
        ])  # fmt: skip

    def test_each_rank_has_names_of_its_own(self):
        made = [plan([of_rank(QKV, rank, 2), of_rank(DOWN, rank, 2)], TENSORS, "m/", same) for rank in range(2)]
        names = [name for one in made for name in one.names.values()]
        self.assertEqual(len(set(names)), 4)
        self.assertEqual(made[1].names[DOWN.path], f"m/rank1of2.{DOWN.path}.weight")
        [load] = made[1].loads
        self.assertEqual((load.rank, load.ranks, load.columns), (1, 2, [f"{DOWN.path}.weight"]))

    def test_what_is_not_split_has_one_name_for_all_ranks(self):
        made = plan([of_rank(QKV, 1, 2), DOWN], TENSORS, "m/", same)
        self.assertEqual(made.names[DOWN.path], f"m/{DOWN.path}.weight")
        self.assertEqual(sorted((load.rank, load.ranks) for load in made.loads), [(0, 0), (1, 2)])

    def test_names_of_the_checkpoint_that_the_engine_changes(self):
        tensors = [f"language_model.{name}" for name in TENSORS] + ["vision.tower.weight"]

        def rename(name):
            return None if name.startswith("vision.") else name.replace("language_model.", "", 1)

        made = plan([QKV], tensors, "", rename)
        self.assertEqual(made.names[QKV.path], f"language_model.{QKV.path}.weight")
        self.assertTrue(made.taken(f"language_model.{PARENT}.attn.q_proj.weight"))
        self.assertFalse(made.taken("vision.tower.weight"))

    def test_a_layer_without_its_tensors_is_named(self):
        missing = Layer(f"{PARENT}.mlp.gate_up_proj", ("gate_proj", "up_proj"))
        with self.assertRaisesRegex(gemmclient.NotFoundError, re.escape(missing.path) + ".*gate_proj"):
            plan([missing], TENSORS, "", same)

    def test_a_prefix_stands_for_the_files_as_they_are(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.safetensors")
            file.write_bytes(b"one")
            first = prefix_of([str(file)], "a model!", "int8")
            self.assertTrue(first.startswith("vllm/a-model--"))
            self.assertEqual(prefix_of([str(file)], "a model!", "int8"), first)
            self.assertNotEqual(prefix_of([str(file)], "a model!", "fp8"), first)
            os.utime(file, ns=(1, 1))
            self.assertNotEqual(prefix_of([str(file)], "a model!", "int8"), first)


class Loaded(unittest.TestCase):
    def test_the_library_makes_those_names(self):
        with Daemon() as daemon, tempfile.TemporaryDirectory() as folder, gemmclient.connect(daemon.socket) as session:
            file = Path(folder, "model.safetensors")
            attn, values = f"{PARENT}.attn", random(1, 8, 64)
            write_safetensors(file, {
                **{f"{attn}.{one}.weight": ("F32", values) for one in QKV.parts},
                f"{DOWN.path}.weight": ("F32", random(2, 16, 64)),
                "model.embed_tokens.weight": ("F32", random(3, 8, 64)),
            })  # fmt: skip
            tensors = [f"{attn}.{one}.weight" for one in QKV.parts] + [f"{DOWN.path}.weight"]
            for rank in range(2):
                made = plan([of_rank(QKV, rank, 2), of_rank(DOWN, rank, 2)], tensors, "m/", same)
                for load in made.loads:
                    session.load_model(
                        file, format="bf16", patterns=load.patterns, fuse=load.fuse, prefix=load.prefix, rank=load.rank,
                        ranks=load.ranks, columns=load.columns,
                    )  # fmt: skip
                shapes = {(session.stat(name).n, session.stat(name).k) for name in made.names.values()}
                self.assertEqual(shapes, {(12, 64), (16, 32)})
            self.assertEqual(len(session.weights()), 4)  # and not the embedding


if __name__ == "__main__":
    unittest.main(verbosity=2)
