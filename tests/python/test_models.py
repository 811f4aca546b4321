#!/usr/bin/python3
"""Whole models in the layouts that people have: what gemmd computes with is what each layout says its weights are.

Files are made here, by what the layouts' specifications say (proto/weights/import names them); where the package gguf is
installed, its own code makes and reads GGUF files as well."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np
from support import BUILD, PATIENCE_S, Daemon, random, write_safetensors

import gemmclient
from gemmclient import errors
from gemmclient import experts as experts_of

N, K = 256, 512
STEM = "model.layers.0.mlp.up_proj"


def e4m3_values():
    """Of all 256 codes; the two that are no numbers are 0."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    value = np.where(code & 0x7F == 0x7F, 0, value)
    return np.where(code & 0x80, -value, value).astype(np.float32)


E4M3 = e4m3_values()


def fp8_codes(seed, *shape):
    codes = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return np.where(codes & 0x7F == 0x7F, 0x30, codes).astype(np.uint8)


def bf16(values):
    """Bits of values that have no more than bf16's."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16)


def short(values):
    """f32 values cut to bf16's bits."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def hadamard(size):
    """ConvRot's regular matrix of `size`, a power of 4."""
    four = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]])
    out = np.ones((1, 1))
    while len(out) < size:
        out = np.kron(out, four)
    return out / np.sqrt(size)


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gemmd-models-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.session = gemmclient.connect(self.daemon.socket)
        self.addCleanup(self.session.close)
        self.addCleanup(self.forget)

    def forget(self):
        for info in self.session.weights():
            self.session.unload(info.name)

    def model(self, tensors, config=None, name="model.safetensors"):
        write_safetensors(self.folder / name, tensors)
        if config is not None:
            (self.folder / "config.json").write_text(json.dumps({"quantization_config": config}))
        return self.folder

    def values(self, name):
        """W as gemmd multiplies with it, exactly: the identity times W^T."""
        with self.session.open(name) as weight:
            kind = weight.info.format.name
            eye = np.eye(weight.k, dtype=np.float32)
            if weight.info.input:  # codes would be taken as they are
                return weight.matmul(eye, y_type="f32").T.copy()
            if kind == "INT8":
                return weight.matmul(eye.astype(np.int8), x_scale=np.ones(weight.k, np.float32), y_type="f32").T.copy()
            if kind == "FP8":
                columns = -(-weight.k // 128) if weight.info.scale.name == "BLOCK" else 1
                ones = np.ones((weight.k, columns) if columns > 1 else weight.k, np.float32)
                codes = np.where(eye == 1, 0x38, 0).astype(np.uint8)
                return weight.matmul(codes, x_type="e4m3", x_scale=ones, y_type="f32").T.copy()
            if kind == "F16":
                return weight.matmul(eye.astype(np.float16), y_type="f32").T.copy()
            if kind == "BF16":
                return weight.matmul(bf16(eye), x_type="bf16", y_type="f32").T.copy()
            return weight.matmul(eye, y_type="f32").T.copy()

    def expect(self, expected, format, name=STEM + ".weight", **options):
        self.session.load_model(self.folder, format=format, **options)
        np.testing.assert_array_equal(self.values(name), expected)

    def refuse(self, kind, *sentences, format="stored", **options):
        with self.assertRaises(kind) as caught:
            self.session.load_model(self.folder, format=format, **options)
        for sentence in sentences:
            self.assertIn(sentence, str(caught.exception))
        self.assertEqual(self.session.weights(), [])


class Layouts(Served):
    def test_halves_as_they_are(self):
        w = random(1, N, K).astype(np.float16)
        self.model({STEM + ".weight": ("F16", w), "model.norm.weight": ("F16", w[0]), "ids": ("I64", np.zeros((1, 8), np.int64))})
        self.expect(w.astype(np.float32), "stored")
        self.assertEqual([info.name for info in self.session.weights()], [STEM + ".weight"])

    def test_fp8_with_blocks_of_deepseek(self):
        codes, scales = fp8_codes(1, N, K), np.abs(random(2, N // 128, K // 128))
        self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".weight_scale_inv": ("F32", scales)},
                   {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})  # fmt: skip
        expected = E4M3[codes] * np.kron(scales, np.ones((128, 128), np.float32))
        self.expect(expected.astype(np.float32), "stored")

    def test_fp8_of_other_blocks_is_refused(self):
        self.model({STEM + ".weight": ("F8_E4M3", fp8_codes(1, N, K))}, {"quant_method": "fp8", "weight_block_size": [64, 64]})
        self.refuse(errors.UnsupportedError, "weight_block_size")

    def test_compressed_tensors(self):
        codes = np.random.default_rng(1).integers(-127, 128, (N, K), np.int8)
        scales = short(np.abs(random(2, N, 1)))
        config = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {}}
        self.model({STEM + ".weight": ("I8", codes), STEM + ".weight_scale": ("BF16", bf16(scales))}, config)
        self.expect(codes.astype(np.float32) * scales, "int8")
        self.forget()
        codes, scale = fp8_codes(3, N, K), np.array([0.0123], np.float32)
        self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".weight_scale": ("F32", scale)},
                   dict(config, format="float-quantized"))  # fmt: skip
        self.expect(E4M3[codes] * scale, "fp8")

    def test_static_scales_of_x(self):
        """x is quantized with the file's scale: rounded to its steps, and cut off where its codes end."""
        x = random(5, 3, K) * 4
        for dtype, codes, most in (("I8", np.random.default_rng(1).integers(-127, 128, (N, K), np.int8), 127),
                                   ("F8_E4M3", fp8_codes(3, N, K), 448)):  # fmt: skip
            w = codes.astype(np.float32) if dtype == "I8" else E4M3[codes]
            x_scale, scales = np.float32(3 / most), np.full((N, 1), 0.01, np.float32)
            self.model({STEM + ".weight": (dtype, codes), STEM + ".weight_scale": ("F32", scales),
                        STEM + ".input_scale": ("F32", np.array([x_scale]))})  # fmt: skip
            self.session.load_model(self.folder, format="stored")
            steps = np.clip(x / x_scale, -most, most)
            steps = np.rint(steps) if dtype == "I8" else E4M3[np.abs(E4M3[None, None, :] - steps[..., None]).argmin(-1)]
            with self.session.open(STEM + ".weight") as weight:
                self.assertEqual(weight.info.input, 2)
                y = weight.matmul(x, y_type="f32")
                with self.assertRaisesRegex(errors.UnsupportedError, "x comes as codes"):
                    weight.matmul(np.ones((1, K), np.int8), x_scale=np.ones(1, np.float32), y_type="f32") if dtype == "I8" else weight.matmul(
                        np.ones((1, K), np.uint8), x_type="e4m3", x_scale=np.ones(1, np.float32), y_type="f32"
                    )
            expected = (steps.astype(np.float64) * x_scale) @ (w.astype(np.float64) * scales).T
            self.assertLess(np.linalg.norm(y - expected) / np.linalg.norm(expected), 2e-4)
            self.assertGreater(np.linalg.norm(y - x @ (w * scales).T) / np.linalg.norm(expected), 0.05)
            self.forget()

    def test_gemmctl_says_what_is_done_to_x(self):
        self.model({"w": ("I8", np.ones((N, K), np.int8)), "w_scale": ("F32", np.ones((N, 1), np.float32)),
                    "w_input_rotation": ("I32", np.array([16], np.int32))})  # fmt: skip
        self.session.load_model(self.folder, format="stored")
        said = json.loads(subprocess.run([BUILD / "gemmctl", "--socket", self.daemon.socket, "weights", "--json"], check=True, stdout=subprocess.PIPE).stdout)
        self.assertEqual([(one["input"], one["experts"]) for one in said["weights"]], [(32, 0)])

    def test_static_scales_that_cannot_be_taken(self):
        codes, row = fp8_codes(1, N, K), np.ones((N, 1), np.float32)
        for scale, kind, sentence in ((np.zeros(1, np.float32), errors.BadFileError, "cannot be quantized by the scale 0"),
                                      (np.array([np.nan], np.float32), errors.BadFileError, "cannot be quantized"),
                                      (np.ones(2, np.float32), errors.UnsupportedError, "input_scale")):  # fmt: skip
            self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".weight_scale": ("F32", row),
                        STEM + ".input_scale": ("F32", scale)})  # fmt: skip
            self.refuse(kind, sentence)
        self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".weight_scale_inv": ("F32", np.ones((N // 128, K // 128), np.float32)),
                    STEM + ".input_scale": ("F32", np.ones(1, np.float32))})  # fmt: skip
        self.refuse(errors.UnsupportedError, "input_scale")
        self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".weight_scale": ("F32", row),
                    STEM + ".input_zero_point": ("I32", np.ones(1, np.int32))})  # fmt: skip
        self.refuse(errors.UnsupportedError, "input_zero_point")

    def test_static_scales_of_what_is_fused(self):
        """One weight quantizes x once: by the largest of the scales, which cuts nothing off that one of them keeps."""
        tensors = {}
        for name, x_scale in (("a", 0.5), ("b", 2.0)):
            tensors[name + ".weight"] = ("I8", np.ones((N, K), np.int8))
            tensors[name + ".weight_scale"] = ("F32", np.ones((N, 1), np.float32))
            tensors[name + ".input_scale"] = ("F32", np.array([x_scale], np.float32))
        self.model(tensors)
        self.session.load_model(self.folder, format="stored", fuse=["a,b=c"])
        with self.session.open("c.weight") as weight:
            y = weight.matmul(np.full((1, K), 100, np.float32), y_type="f32")
        np.testing.assert_array_equal(y, np.full((1, 2 * N), 100 * K, np.float32))
        self.forget()
        del tensors["b.input_scale"]
        self.model(tensors)
        with self.assertRaisesRegex(errors.UnsupportedError, "cannot be one weight"):
            self.session.load_model(self.folder, format="stored", fuse=["a,b=c"])

    def test_compressed_tensors_that_change_the_meaning(self):
        codes, scale = np.ones((N, K), np.int8), np.ones((N, 1), np.float32)
        tensors = {STEM + ".weight": ("I8", codes), STEM + ".weight_scale": ("F32", scale)}
        base = {"quant_method": "compressed-tensors", "format": "int-quantized"}
        for config, marker in (({"transform_config": {"u": {"type": "hadamard"}}}, "transform_config"),
                               ({"format": "marlin-24"}, "marlin-24"),
                               ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
                               ({"quant_method": "hqq"}, "hqq"), ({"quant_method": "bitsandbytes"}, "bitsandbytes")):  # fmt: skip
            self.model(tensors, dict(base, **config))
            self.refuse(errors.UnsupportedError, marker)
        for marker in ("weight_zero_point", "weight_g_idx", "pre_quant_scale", "weight_scale_2", "SCB"):
            self.model(dict(tensors, **{f"{STEM}.{marker}": ("F32", scale[0])}), base)
            self.refuse(errors.UnsupportedError, marker)

    def test_modelopt(self):
        codes, scale = fp8_codes(3, N, K), np.array(0.5, np.float32)
        self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".weight_scale": ("F32", scale),
                    STEM + ".input_scale": ("F32", scale)})  # fmt: skip
        about = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}
        (self.folder / "config.json").write_text("{}")
        (self.folder / "hf_quant_config.json").write_text(json.dumps(about))
        self.expect(E4M3[codes] * scale, "stored")
        self.forget()
        about["quantization"]["quant_algo"] = "W4A8_AWQ"
        (self.folder / "hf_quant_config.json").write_text(json.dumps(about))
        self.refuse(errors.UnsupportedError, "W4A8_AWQ")

    def gptq(self, bits, groups, zeros, version="gptq", order=None, desc_act=None):
        """Packs as QuantLinear.pack does; returns W."""
        rng, per = np.random.default_rng(bits + groups), 32 // bits
        codes = rng.integers(0, 2**bits, (K, N)).astype(np.uint32)
        scales = np.abs(random(3, groups, N)).astype(np.float16)
        zeros = np.broadcast_to(np.asarray(zeros, np.uint32), (groups, N))
        index = (np.arange(K) // (K // groups) if order is None else order).astype(np.int32)
        stored = (zeros - (version == "gptq")) & (2**bits - 1)
        shifts = (np.arange(per) * bits).astype(np.uint32)
        qweight = (codes.reshape(K // per, per, N) << shifts[None, :, None]).sum(1).astype(np.uint32)
        qzeros = (stored.reshape(groups, N // per, per).astype(np.uint32) << shifts).sum(2).astype(np.uint32)
        self.model({STEM + ".qweight": ("I32", qweight), STEM + ".qzeros": ("I32", qzeros),
                    STEM + ".scales": ("F16", scales), STEM + ".g_idx": ("I32", index)},
                   {"quant_method": "gptq", "bits": bits, "group_size": K // groups, "desc_act": order is not None if desc_act is None else desc_act,
                    "checkpoint_format": version})  # fmt: skip
        return ((codes.astype(np.float32) - zeros[index]) * scales.astype(np.float32)[index]).T

    def test_gptq(self):
        self.expect(self.gptq(8, 1, 128), "int8")
        self.forget()
        self.expect(self.gptq(8, 1, 128, "gptq_v2"), "stored")
        self.forget()
        self.expect(self.gptq(2, K // 128, 1), "int2")
        self.forget()
        mixed = np.random.default_rng(9).integers(1, 3, (K // 128, N))
        self.expect(self.gptq(2, K // 128, mixed), "int2")
        self.forget()
        self.expect(self.gptq(2, 2, 2, "gptq_v2"), "int2")  # groups of 256
        self.forget()
        self.expect(self.gptq(2, 1, 2), "int2")

    def test_gptq_in_act_order(self):
        """Elements of a group lie anywhere in K: W comes in the order of the groups, and so does x."""
        order = np.random.default_rng(1).permutation(K) // 128
        mixed = np.random.default_rng(9).integers(1, 3, (K // 128, N))
        for zeros, version in ((2, "gptq"), (mixed, "gptq_v2")):
            for format in ("int2", "int2a8"):
                w = self.gptq(2, K // 128, zeros, version, order=order)
                self.expect(w, format) if format == "int2" else self.session.load_model(self.folder, format=format)
                with self.session.open(STEM + ".weight") as weight:
                    self.assertEqual(weight.info.input, 1)
                    x = random(4, 5, K)
                    y, expected = weight.matmul(x, y_type="f32"), x.astype(np.float64) @ w.T
                    self.assertLess(np.linalg.norm(y - expected) / np.linalg.norm(expected), 1e-5 if format == "int2" else 2e-2)
                self.forget()
        self.expect(self.gptq(8, 1, 128, order=np.zeros(K)), "int8")  # one group: there is no order

    def test_gptq_in_an_order_that_cannot_be_taken(self):
        order = np.random.default_rng(1).permutation(K) // 128
        self.gptq(2, 4, 2, order=order, desc_act=False)
        self.refuse(errors.UnsupportedError, "g_idx", "no desc_act")
        order[order == 3] = 2
        self.gptq(2, 4, 2, order=order)
        self.refuse(errors.UnsupportedError, "group 2 of its g_idx has not 128 elements")
        order[0] = 4
        w = self.gptq(2, 4, 2, order=np.minimum(order, 3))
        del w
        tensors = {STEM + ".qweight": ("I32", np.zeros((K // 16, N), np.int32)), STEM + ".qzeros": ("I32", np.full((4, N // 16), 0x55555555, np.int32)),
                   STEM + ".scales": ("F16", np.ones((4, N), np.float16)), STEM + ".g_idx": ("I32", order.astype(np.int32))}  # fmt: skip
        self.model(tensors, {"quant_method": "gptq", "bits": 2, "group_size": 128, "desc_act": True})
        self.refuse(errors.BadFileError, "g_idx is 4 at 0")
        self.gptq(2, 4, 2, order=np.random.default_rng(1).permutation(K) // 128)
        with self.assertRaisesRegex(errors.UnsupportedError, "columns cannot be cut"):
            self.session.load_model(self.folder, format="stored", rank=0, ranks=2, columns=["*"])

    def test_gptq_that_cannot_be_taken(self):
        self.gptq(8, 1, np.where(np.arange(N) == 7, 127, 128))
        self.refuse(errors.UnsupportedError, "zero point of row 7, group 0 is 127")
        self.gptq(2, 4, np.where(np.arange(N) == 5, 3, 2))
        self.refuse(errors.UnsupportedError, "zero point of row 5, group 0 is 3")
        self.gptq(8, 4, 128)
        self.refuse(errors.UnsupportedError, "groups of 128")
        self.gptq(2, 8, 2)
        self.refuse(errors.UnsupportedError, "groups of 64")
        self.gptq(2, 4, 2)
        (self.folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq", "bits": 3}}))
        self.refuse(errors.UnsupportedError, "3 bits")
        self.gptq(2, 4, 2)
        (self.folder / "config.json").unlink()
        self.refuse(errors.UnsupportedError, "configuration")

    def test_bitnet_by_both_conventions(self):
        codes = np.random.default_rng(1).integers(0, 3, (N, K)).astype(np.uint8)
        parts = codes.reshape(4, N // 4, K)
        packed = parts[0] | parts[1] << 2 | parts[2] << 4 | parts[3] << 6
        scale = np.array([0.4375], np.float32)
        tensors = {STEM + ".weight": ("U8", packed), STEM + ".weight_scale": ("BF16", bf16(scale))}
        self.model(tensors, {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"})
        self.expect((codes.astype(np.float32) - 1) * scale, "int2")
        self.forget()
        self.model(tensors, {"quant_method": "bitnet"})
        inverse = np.float32(np.float16(np.float32(1) / scale[0]))
        self.expect((codes.astype(np.float32) - 1) * inverse, "int2")
        self.forget()
        self.model(tensors, {"quant_method": "bitnet", "linear_class": "otherlinear"})
        self.refuse(errors.UnsupportedError, "otherlinear")

    def test_ternary_weights_are_found(self):
        """Halves of {-s, 0, s}, a scale a row, are what they are, by either method."""
        codes = np.random.default_rng(1).integers(-1, 2, (N, K)).astype(np.float32)
        w = (codes * np.abs(random(2, N, 1)).astype(np.float16)).astype(np.float16)
        self.model({STEM + ".weight": ("F16", w)})
        for method in ("ternary", "least-squares"):
            self.expect(w.astype(np.float32), "int2", method=method)
            self.forget()

    def test_comfy(self):
        codes, scales = np.random.default_rng(1).integers(-127, 128, (N, K), np.int8), np.abs(random(2, N, 1))
        tensors = {STEM + ".weight": ("I8", codes), STEM + ".weight_scale": ("F32", scales)}

        def marked(**marker):
            text = np.frombuffer(json.dumps(marker).encode(), np.uint8)
            self.model(dict(tensors, **{STEM + ".comfy_quant": ("U8", text)}))

        marked(format="int8_tensorwise", convrot=False)
        self.expect(codes * scales, "stored")
        self.forget()
        for group in (8, 0, 512, 4096):
            marked(format="int8_tensorwise", convrot=True, convrot_groupsize=group)
            self.refuse(errors.UnsupportedError, f"rotated in groups of {group}")
        marked(format="int8_tensorwise", convrot="yes")
        self.refuse(errors.UnsupportedError, "comfy_quant has a 'convrot'")
        marked(format="int8_tensorwise", convrot=True, convrot_groupsize=1024)
        self.refuse(errors.UnsupportedError, "multiple of 1024")
        marked(format="int8_tensorwise", convrot=True, seed=3)
        self.refuse(errors.UnsupportedError, "comfy_quant has 'seed'")
        marked(format="int8_blockwise", group_size=128)
        self.refuse(errors.UnsupportedError, "comfy_quant")
        marked(format="nvfp4")
        self.refuse(errors.UnsupportedError, "nvfp4")

    def test_comfy_rotated(self):
        """ConvRot: the codes are those of W in another basis, and x is brought there."""
        codes, scales = np.random.default_rng(1).integers(-127, 128, (N, K), np.int8), np.abs(random(2, N, 1))
        for group in (4, 16, 64, 256):
            marker = np.frombuffer(json.dumps({"format": "int8_tensorwise", "per_row": True, "convrot": True,
                                               "convrot_groupsize": group}).encode(), np.uint8)  # fmt: skip
            self.model({STEM + ".weight": ("I8", codes), STEM + ".weight_scale": ("F32", scales), STEM + ".comfy_quant": ("U8", marker)})
            self.session.load_model(self.folder, format="stored")
            self.assertEqual(self.session.weights()[0].input, 16 * {4: 1, 16: 2, 64: 3, 256: 4}[group])
            w = (codes * scales.astype(np.float64)).reshape(N, -1, group) @ hadamard(group)
            expected = w.reshape(N, K)
            np.testing.assert_allclose(self.values(STEM + ".weight"), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
            x = random(7, 6, K)
            with self.session.open(STEM + ".weight") as weight:
                y = weight.matmul(x, y_type="f32")
            self.assertLess(np.linalg.norm(y - x @ expected.T) / np.linalg.norm(x @ expected.T), 2e-2)
            name = self.folder / "single.safetensors"
            write_safetensors(name, {"w": ("I8", codes), "w_scale": ("F32", scales), "w_input_rotation": ("I32", np.array([group], np.int32))})
            before = self.session.weights()[0].hash
            self.assertEqual(self.session.load(name, tensor="w", name="w", format="int8").hash, before)
            self.forget()
            os.unlink(name)
        self.model({STEM + ".weight": ("I8", codes), STEM + ".weight_scale": ("F32", scales)})
        self.session.load_model(self.folder, format="stored")
        self.assertNotEqual(self.session.weights()[0].hash, before)

    def test_comfy_scaled_fp8(self):
        codes, scale = fp8_codes(3, N, K), np.array([0.25], np.float32)
        self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".scale_weight": ("F32", scale),
                    "scaled_fp8": ("F8_E4M3", np.zeros(2, np.uint8))})  # fmt: skip
        self.expect(E4M3[codes] * scale, "fp8")

    def test_comfy_metadata_of_the_header(self):
        codes, scale = np.ones((N, K), np.int8), np.ones((N, 1), np.float32)
        about = json.dumps({"layers": {STEM: {"format": "int8_tensorwise", "convrot": True}}})
        header = {"__metadata__": {"_quantization_metadata": about},
                  STEM + ".weight": {"dtype": "I8", "shape": codes.shape, "data_offsets": [0, codes.nbytes]},
                  STEM + ".weight_scale": {"dtype": "F32", "shape": scale.shape, "data_offsets": [codes.nbytes, codes.nbytes + scale.nbytes]}}  # fmt: skip
        text = json.dumps(header).encode()
        (self.folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + codes.tobytes() + scale.tobytes())
        self.session.load_model(self.folder, format="stored")
        self.assertEqual(self.session.weights()[0].input, 64)
        sums = np.tile(hadamard(256).sum(0), K // 256)
        np.testing.assert_allclose(self.values(STEM + ".weight"), np.tile(sums, (N, 1)), atol=1e-5)

    def test_what_no_importer_knows(self):
        self.model({STEM + ".weight_packed": ("I32", np.zeros((N, K // 8), np.int32))})
        self.refuse(errors.UnsupportedError, "weight_packed")
        self.model({STEM + ".weight": ("F8_E5M2", np.zeros((N, K), np.uint8))})
        self.refuse(errors.UnsupportedError, "F8_E5M2")


class FourBits(Served):
    """INT4 and MXFP4 as their layouts have them; K in order, in act order, with a last group that is shorter."""

    def random4(self, groups, seed=1, n=N, k=K, first=0):
        """Codes, zero points and scales, [N, K] and [N, G]."""
        rng = np.random.default_rng(seed)
        codes, zeros = rng.integers(0, 16, (n, k)).astype(np.uint32), rng.integers(first, 16, (n, groups)).astype(np.uint32)
        return codes, zeros, short(random(seed + 1, n, groups))

    def packed(self, codes, order=range(8)):
        """Eight codes of the last axis in a word."""
        shifts = np.array([list(order).index(i) for i in range(8)], np.uint32) * 4
        return (codes.reshape(*codes.shape[:-1], -1, 8) << shifts).sum(-1).astype(np.uint32)

    def gptq(self, group, zeros=None, version="gptq", index=None, k=K, dtype="F16", **config):
        groups = -(-k // group)
        codes, any_zeros, scales = self.random4(groups, k=k, first=1)
        scales = scales.astype(np.float16).astype(np.float32) if dtype == "F16" else scales
        zeros = any_zeros if zeros is None else np.broadcast_to(np.asarray(zeros, np.uint32), (N, groups))
        index = (np.arange(k) // group if index is None else np.asarray(index)).astype(np.int32)
        self.model({STEM + ".qweight": ("I32", self.packed(codes).T.copy()), STEM + ".g_idx": ("I32", index),
                    STEM + ".qzeros": ("I32", self.packed((zeros - (version == "gptq") & 15).T.copy())),
                    STEM + ".scales": (dtype, bf16(scales.T) if dtype == "BF16" else scales.T.astype(np.float16))},
                   {"quant_method": "gptq", "bits": 4, "group_size": group, "checkpoint_format": version, "desc_act": False, **config})  # fmt: skip
        within = np.clip(index, 0, groups - 1)
        return (codes.astype(np.float32) - zeros[:, within]) * scales[:, within]

    def test_gptq(self):
        for group, scale in ((32, "GROUP32_ZEROS"), (64, "GROUP64_ZEROS"), (128, "GROUP_ZEROS"), (256, "GROUP_ZEROS"), (K, "ROW_ZEROS")):
            for version in ("gptq", "gptq_v2"):
                self.expect(self.gptq(group, version=version), "stored")
                self.assertEqual(self.session.weights()[0].scale.name, scale)
                self.forget()
        self.expect(self.gptq(128, 8, sym=True), "int4")
        self.assertEqual(self.session.weights()[0].scale.name, "GROUP")
        self.forget()
        self.expect(self.gptq(128, dtype="BF16"), "int4")
        self.forget()
        self.expect(self.gptq(128, k=K + 64), "int4")  # the last group is shorter
        self.forget()
        w, x = self.gptq(32), random(4, 5, K)
        self.session.load_model(self.folder, format="int4a8")
        with self.session.open(STEM + ".weight") as weight:
            y, expected = weight.matmul(x, y_type="f32"), x.astype(np.float64) @ w.T
        self.assertLess(np.linalg.norm(y - expected) / np.linalg.norm(expected), 2e-2)

    def test_gptq_in_act_order(self):
        for k, sym in ((K, False), (K, True), (K + 64, False)):
            index = np.random.default_rng(1).permutation(k) // 128
            w, x = self.gptq(128, 8 if sym else None, index=index, k=k, desc_act=True, sym=sym), random(4, 5, k)
            self.expect(w, "int4")
            with self.session.open(STEM + ".weight") as weight:
                self.assertEqual(weight.info.input, 1)
                y, expected = weight.matmul(x, y_type="f32"), x.astype(np.float64) @ w.T
            self.assertLess(np.linalg.norm(y - expected) / np.linalg.norm(expected), 1e-5)
            self.forget()

    def test_gptq_that_cannot_be_taken(self):
        self.gptq(16)
        self.refuse(errors.UnsupportedError, "groups of 16")
        self.gptq(128, np.where(np.arange(N) == 7, 7, 8)[:, None], sym=True)
        self.refuse(errors.UnsupportedError, "zero point of row 7, group 0 is 7", "sym")
        self.gptq(128, np.where(np.arange(N) == 7, 0, 8)[:, None])
        self.refuse(errors.UnsupportedError, "zero point of row 7, group 0 is 16", "1 to 15")
        self.gptq(128, bits=8)
        self.refuse(errors.BadFileError, "not GPTQ's of 8 bits")
        self.gptq(128, dynamic={"-:.*down.*": {}})
        self.refuse(errors.UnsupportedError, "dynamic")
        index = np.random.default_rng(1).permutation(K) // 128
        self.gptq(128, index=np.where(index == 3, 2, index), desc_act=True)
        self.refuse(errors.UnsupportedError, "group 2 of its g_idx has not 128 elements: it is no order of x")
        self.gptq(128, index=index + 1, desc_act=True)
        self.refuse(errors.BadFileError, "its g_idx is 4 at")
        self.gptq(128, index=index - 1, desc_act=True)
        self.refuse(errors.BadFileError, "its g_idx is -1 at")

    def awq(self, group, k=K, scales=None, **config):
        groups = -(-k // group)
        codes, zeros, own = self.random4(groups, k=k)
        halves = (own if scales is None else np.broadcast_to(scales, own.shape)).astype(np.float16)
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        tensors = {STEM + ".qweight": ("I32", self.packed(codes.T.copy(), order)), STEM + ".qzeros": ("I32", self.packed(zeros.T.copy(), order)),
                   STEM + ".scales": ("F16", halves.T.copy())}  # fmt: skip
        self.model(tensors, {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm", **config})
        spread = np.arange(k) // group
        with np.errstate(invalid="ignore"):
            return (codes.astype(np.float32) - zeros[:, spread]) * halves.astype(np.float32)[:, spread], tensors

    def test_awq(self):
        for group in (32, 64, 128, K):
            self.expect(self.awq(group)[0], "stored")
            self.forget()
        w = self.awq(128)[0]
        for rank in range(2):
            self.session.load_model(self.folder, format="stored", prefix=f"r{rank}.", rank=rank, ranks=2)
            self.session.load_model(self.folder, format="stored", prefix=f"c{rank}.", rank=rank, ranks=2, columns=["*"])
        np.testing.assert_array_equal(np.concatenate([self.values(f"r{rank}.{STEM}.weight") for rank in range(2)]), w)
        np.testing.assert_array_equal(np.concatenate([self.values(f"c{rank}.{STEM}.weight") for rank in range(2)], 1), w)

    def test_awq_that_cannot_be_taken(self):
        self.awq(128, version="gemv")
        self.refuse(errors.UnsupportedError, "version 'gemv'; gemm is taken")
        self.awq(128, bits=8)
        self.refuse(errors.UnsupportedError, "AWQ of 8 bits")
        self.awq(128, group_size=64)
        self.refuse(errors.BadFileError, "not AWQ's", "groups of 64")
        tensors = self.awq(128)[1]
        del tensors[STEM + ".qzeros"]
        self.model(tensors)
        self.refuse(errors.NotFoundError, "has no qzeros")
        for bad in (np.inf, np.nan):
            self.awq(128, scales=bad)
            self.refuse(errors.BadFileError, "scale tensor", "element 0 is", str(bad))
        self.expect(0 * self.awq(128, scales=0)[0], "stored")  # a group of zeros

    def pack_quantized(self, group, zeros="packed", index=None, dtype="BF16", k=K, bits=4, **config):
        groups = -(-k // group)
        codes, own, scales = self.random4(groups, k=k)
        own = own if zeros else np.full_like(own, 8)
        tensors = {STEM + ".weight_packed": ("I32", self.packed(codes)), STEM + ".weight_shape": ("I64", np.array([N, k * 4 // bits])),
                   STEM + ".weight_scale": (dtype, bf16(scales) if dtype == "BF16" else scales.astype(np.float16 if dtype == "F16" else np.float32))}  # fmt: skip
        if zeros:
            tensors[STEM + ".weight_zero_point"] = ("I32", self.packed(own.T.copy()).T.copy()) if zeros == "packed" else ("I8", own.astype(np.int8) - np.int8(8))
        if index is not None:
            tensors[STEM + ".weight_g_idx"] = ("I32", index.astype(np.int32))
        weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": group, "symmetric": not zeros}
        self.model(tensors, {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"weights": weights}}, **config})
        spread = np.arange(k) // group if index is None else index
        return (codes.astype(np.float32) - own[:, spread]) * (scales.astype(np.float16).astype(np.float32) if dtype == "F16" else scales)[:, spread], tensors

    def test_pack_quantized(self):
        for group in (32, 64, 128, K):
            for zeros in (None, "packed", "bytes"):
                self.expect(self.pack_quantized(group, zeros)[0], "stored")
                self.forget()
        self.expect(self.pack_quantized(128, dtype="F16", k=K + 64)[0], "int4")  # the last group is shorter
        self.forget()
        index = np.random.default_rng(1).permutation(K) // 64
        self.expect(self.pack_quantized(64, index=index)[0], "int4")
        self.assertEqual(self.session.weights()[0].input, 1)

    def test_pack_quantized_that_cannot_be_taken(self):
        self.pack_quantized(128, bits=8)
        self.refuse(errors.UnsupportedError, f"holds {N} x {K} codes of 4 bits, and its weight_shape is {N} x {K // 2}")
        groups = {str(bits): {"weights": {"num_bits": bits}} for bits in (4, 8)}
        self.pack_quantized(128, config_groups=groups)
        self.refuse(errors.UnsupportedError, "weights of 4 and of 8 bits")
        self.pack_quantized(128, config_groups={"a": groups["8"]})
        self.refuse(errors.UnsupportedError, "packed weights have 8 bits")
        self.pack_quantized(128, format="mixed-precision")
        self.refuse(errors.UnsupportedError, "mixed-precision")
        self.pack_quantized(128, dtype="F32")
        self.refuse(errors.UnsupportedError, "is F32, which scales of int4 are not")
        self.pack_quantized(128, index=np.full(K, -1))
        self.refuse(errors.BadFileError, "its g_idx is -1 at 0")
        tensors = self.pack_quantized(128, "bytes")[1]
        tensors[STEM + ".weight_zero_point"][1][3, 2] = 8
        self.model(tensors)
        self.refuse(errors.BadFileError, "zero point 14 is 16, codes reach 15")
        tensors[STEM + ".weight_zero_point"] = ("I8", np.zeros((N, 3), np.int8))
        self.model(tensors)
        self.refuse(errors.BadFileError, "no zero point a group")
        tensors[STEM + ".weight_packed"] = ("I32", np.zeros((N - 1, K // 8), np.int32))
        self.model(tensors)
        self.refuse(errors.BadFileError, "no scale a group")

    def mxfp4(self, *shape, seed=1):
        """Codes, two a byte, scales, and values."""
        rng = np.random.default_rng(seed)
        codes, scales = rng.integers(0, 16, shape).astype(np.uint8), rng.integers(118, 132, (*shape[:-1], shape[-1] // 32)).astype(np.uint8)
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)[codes]
        return codes[..., ::2] | codes[..., 1::2] << 4, scales, values * np.repeat(np.exp2(scales.astype(np.float32) - 127), 32, -1)

    def test_experts_of_gpt_oss(self):
        experts = 3
        blocks, scales, w = self.mxfp4(experts, N, K)
        name = STEM + ".experts.gate_up_proj"
        self.model({name + "_blocks": ("U8", blocks.reshape(experts, N, K // 32, 16)), name + "_scales": ("U8", scales)}, {"quant_method": "mxfp4"})
        eye, path = np.eye(K, dtype=np.float32), self.folder / "model.safetensors"
        for first, count in ((0, 3), (1, 2)):
            info = self.session.load(path, tensor=name + "_blocks", name="w", format="mxfp4", experts=count, expert=first)
            self.assertEqual((info.experts, info.n, info.k), (count, N, K))
            with self.session.open("w") as weight:
                for e in range(count):
                    y = experts_of.matmul(weight, eye, np.full((K, 1), e, np.int32), sum=False, y_type="f32")
                    np.testing.assert_array_equal(y[:, 0].T, w[first + e])
            self.forget()
        with self.assertRaisesRegex(errors.UnsupportedError, "4 dimensions"):
            self.session.load(path, tensor=name + "_blocks", name="w", format="mxfp4")
        scales[1, 2, 3] = 255
        self.model({name + "_blocks": ("U8", blocks.reshape(experts, N, K // 32, 16)), name + "_scales": ("U8", scales)})
        with self.assertRaisesRegex(errors.BadFileError, "_scales': element 35 is nan"):
            self.session.load(path, tensor=name + "_blocks", name="w", format="mxfp4", experts=3)
        self.model({name + "_blocks": ("U8", blocks.reshape(experts, N, K // 32, 16)), name + "_scales": ("U8", scales[:, :, 1:].copy())})
        with self.assertRaisesRegex(errors.BadFileError, "not a U8 for each 32 elements"):
            self.session.load(path, tensor=name + "_blocks", name="w", format="mxfp4", experts=3)

    def test_a_folder_of_gpt_oss(self):
        """Experts that are stacked in one tensor are one weight; their biases are none."""
        experts, name, router = 4, STEM + ".experts.gate_up_proj", STEM + ".router.weight"
        blocks, scales, w = self.mxfp4(experts, N, K)
        tensors = {name + "_blocks": ("U8", blocks.reshape(experts, N, K // 32, 16)), name + "_scales": ("U8", scales),
                   name + "_bias": ("BF16", bf16(short(random(2, experts, N)))), router: ("BF16", bf16(short(random(3, experts, K))))}  # fmt: skip
        self.model(tensors, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.mlp.router"]})
        eye = np.eye(K, dtype=np.float32)
        whole, ranks = dict(format="stored"), dict(format="stored", rank=1, ranks=2, patterns=["*.experts.*"])
        for options, first, count, rows in ((whole, 0, 4, N), (dict(whole, join_experts=True), 0, 4, N), (ranks, 0, 4, N // 2),
                                            (dict(ranks, join_experts=True, split_experts=True), 2, 2, N)):  # fmt: skip
            with self.subTest(options):
                self.session.load_model(self.folder, **options)
                self.assertEqual({info.name for info in self.session.weights()}, {name} if "ranks" in options else {name, router})
                with self.session.open(name) as weight:
                    self.assertEqual((weight.info.experts, weight.n, weight.k), (count, rows, K))
                    for e in range(count):
                        y = experts_of.matmul(weight, eye, np.full((K, 1), e, np.int32), sum=False, y_type="f32")
                        np.testing.assert_array_equal(y[:, 0].T, w[first + e, N - rows :])
                self.forget()
        tensors[name + "_scales"] = ("U8", scales[1:].copy())
        self.model(tensors)
        self.refuse(errors.BadFileError, "not a U8 for each 32 elements")
        tensors[name + "_scales"] = ("U8", scales.reshape(-1, K // 32))
        self.model(tensors)
        self.refuse(errors.BadFileError, "not a U8 for each 32 elements")

    def test_a_marker_beside_stacked_experts_is_read_whole(self):
        marker = np.frombuffer(json.dumps({"format": "int8_tensorwise", "seed": 3}).encode(), np.uint8)
        self.model({"w.weight": ("F16", np.ones((3, 32, 32), np.float16)), "w.comfy_quant": ("U8", marker)})
        with self.assertRaisesRegex(errors.UnsupportedError, "has 'seed'"):
            self.session.load(self.folder / "model.safetensors", tensor="w.weight", name="w", format="f16", experts=3)

    def test_mxfp4_by_itself(self):
        codes, scales, w = self.mxfp4(N, K)
        self.model({STEM + ".weight_packed": ("U8", codes), STEM + ".weight_scale": ("U8", scales)},
                   {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"})  # fmt: skip
        self.expect(w, "stored")
        self.forget()
        self.model({"w_blocks": ("U8", codes.reshape(N, K // 32, 16)), "w_scales": ("F8_E8M0", scales)})
        self.expect(w, "mxfp4", name="w")

    def nvfp4(self, n, seed):
        """Codes, two a byte, scales of e4m3, and the values that they stand for."""
        rng = np.random.default_rng(seed)
        codes, scales = rng.integers(0, 16, (n, K)).astype(np.uint8), rng.integers(0, 0x7F, (n, K // 16)).astype(np.uint8)
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]
        return codes[..., ::2] | codes[..., 1::2] << 4, scales, values * np.repeat(E4M3[scales].astype(np.float64), 16, -1)

    def test_nvfp4(self):
        """A product of three short numbers is rounded once, to f32; fused parts keep a factor each."""
        one, other = np.float32(0.0123), np.float32(1234.5)
        pieces = [("a.weight", one, *self.nvfp4(N, 1)), ("b.weight", other, *self.nvfp4(16, 2))]
        for part, named, factor in (("weight", "weight_scale_2", lambda v: v), ("weight_packed", "weight_global_scale", lambda v: 1 / v)):
            tensors, expected = {}, []
            for name, whole, codes, scales, values in pieces:
                stem = name[: -len(".weight")]
                tensors.update({f"{stem}.{part}": ("U8", codes), stem + ".weight_scale": ("F8_E4M3", scales),
                                f"{stem}.{named}": ("F32", np.array([whole])), stem + ".input_scale" if part == "weight" else stem + ".input_global_scale": ("F32", np.ones(1, np.float32))})  # fmt: skip
                expected.append((values * np.float64(np.float32(factor(whole)))).astype(np.float32))
            self.model(tensors)
            self.expect(expected[0], "stored", name="a.weight")
            np.testing.assert_array_equal(self.values("b.weight"), expected[1])
            self.assertEqual({info.scale.name for info in self.session.weights()}, {"GROUP16_FACTORS"})
            self.forget()
            self.expect(np.concatenate(expected), "nvfp4", name="c.weight", fuse=["a,b=c"])
            self.forget()

    def test_real_zero_points_at_the_ends_of_f16(self):
        """As far from the codes as an f16 can be, and next to nothing: within what NUMERICS.md allows for any operands."""
        codes, _, _ = self.random4(1)
        words = (codes.reshape(N, K // 4, 4).astype(np.uint16) << np.array([0, 4, 8, 12], np.uint16)).sum(2).astype(np.uint16)
        scales, x = (random(5, N, K // 64) + 1.5).astype(np.float16), random(6, 5, K)
        ends = np.array([0, 15.9, 65504, -65504, 6e-8, -0.25, 1000], np.float16)
        for zeros in [np.full((N, K // 64), end) for end in ends] + [np.resize(ends, (N, K // 64))]:
            self.model({"t": ("U16", words), "t_scale": ("F16", scales), "t_zero": ("F16", zeros)})
            w = (codes - np.repeat(zeros.astype(np.float64), 64, 1)) * np.repeat(scales.astype(np.float64), 64, 1)
            for format in ("int4", "int4a8"):
                self.session.load(self.folder / "model.safetensors", tensor="t", name=format, format=format, replace=True)
                step = (np.abs(x).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
                rows = np.rint(x / step) * step.astype(np.float64) if format == "int4a8" else x.astype(np.float64)
                with self.session.open(format) as weight:
                    y = weight.matmul(x, y_type="f32").astype(np.float64)
                off, sums = np.linalg.norm(y - rows @ w.T, axis=1), np.linalg.norm(np.abs(rows) @ np.abs(w).T, axis=1)
                most = 2e-5 if self.session.status().backend == "cpu" else 1e-3
                self.assertTrue((off <= 4e-7 * np.linalg.norm(rows @ w.T, axis=1) + most * sums).all(), (format, zeros[0]))
        for bad in (np.nan, np.inf):
            self.model({"t": ("U16", words), "t_scale": ("F16", scales), "t_zero": ("F16", np.full_like(scales, bad))})
            with self.assertRaisesRegex(errors.BadFileError, "zero point 0 is"):
                self.session.load(self.folder / "model.safetensors", tensor="t", name="bad", format="int4")

    def test_nvfp4_that_is_damaged(self):
        codes, scales, _ = self.nvfp4(N, 1)

        def refuse(kind, sentence, **changed):
            tensors = {STEM + ".weight": ("U8", codes), STEM + ".weight_scale": ("F8_E4M3", scales), STEM + ".weight_scale_2": ("F32", np.ones(1, np.float32))}
            tensors.update({f"{STEM}.{name}": tensor for name, tensor in changed.items()})
            self.model(tensors)
            self.refuse(kind, sentence)

        bad = scales.copy()
        bad[3, 4] = 0x7F
        refuse(errors.BadFileError, f"element {3 * (K // 16) + 4} is nan", weight_scale=("F8_E4M3", bad))
        refuse(errors.BadFileError, "not an F8_E4M3 for each 16 elements", weight_scale=("F8_E4M3", scales[:, 1:].copy()))
        for value in (np.inf, np.nan, -1):
            refuse(errors.BadFileError, "the factor of its scales is", weight_scale_2=("F32", np.array([value], np.float32)))
        refuse(errors.BadFileError, "no factor of its scales", weight_scale_2=("F32", np.ones(2, np.float32)))
        refuse(errors.UnsupportedError, "pre_quant_scale", pre_quant_scale=("F32", np.ones(K, np.float32)))

    def test_nvfp4_of_numbers(self):
        w = random(4, N, K)
        self.model({"w.weight": ("F32", w)})
        self.session.load_model(self.folder, format="nvfp4")
        values = self.values("w.weight")
        self.assertLess(np.linalg.norm(values - w) / np.linalg.norm(w), 0.12)
        self.assertEqual(np.abs(values).max(), np.float32(np.abs(w).max() / np.float32(2688)) * np.float32(2688))


class Whole(Served):
    """Folders, patterns, rules, fusing, parts, and all or nothing."""

    def llama(self, layers=2, seed=1, index=True):
        shapes = {"self_attn.q_proj": (256, K), "self_attn.k_proj": (128, K), "self_attn.v_proj": (128, K),
                  "self_attn.o_proj": (K, 256), "mlp.gate_proj": (256, K), "mlp.up_proj": (256, K), "mlp.down_proj": (K, 256)}  # fmt: skip
        self.tensors = {f"model.layers.{layer}.{name}.weight": random(seed * 1000 + 10 * layer + i, *shape).astype(np.float16)
                        for layer in range(layers) for i, (name, shape) in enumerate(shapes.items())}  # fmt: skip
        names = sorted(self.tensors)
        shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for shard, held in shards.items():
            write_safetensors(self.folder / shard, {name: ("F16", self.tensors[name]) for name in held})
        self.map = {name: shard for shard, held in shards.items() for name in held}
        if index:
            self.write_index(self.map)

    def write_index(self, weight_map):
        (self.folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    def test_shards_rules_and_fusing(self):
        self.llama()
        heard = []
        result = self.session.load_model(
            self.folder, prefix="m.", rules=[("*.mlp.*", "bf16")], format="f16",
            fuse=["q_proj,k_proj,v_proj=qkv_proj", "gate_proj,up_proj=gate_up_proj"], progress=lambda *now: heard.append(now),
        )  # fmt: skip
        self.assertEqual(len(result.names), 8)
        self.assertEqual(result.names, [info.name for info in self.session.weights()])
        p = "model.layers.1.self_attn."
        fused = np.concatenate([self.tensors[p + name + ".weight"] for name in ("q_proj", "k_proj", "v_proj")])
        np.testing.assert_array_equal(self.values("m." + p + "qkv_proj.weight"), fused.astype(np.float32))
        self.assertEqual(self.session.stat("m.model.layers.0.mlp.gate_up_proj.weight").format.name, "BF16")
        self.assertEqual(heard[-1][0], heard[-1][1])
        self.assertEqual(heard[-1][1], sum(w.nbytes for w in self.tensors.values()))

    def test_fused_codes_keep_their_scales(self):
        tensors, expected = {}, []
        for i, (name, rows) in enumerate((("q_proj", 256), ("k_proj", 128))):
            codes, scale = fp8_codes(i, rows, K), np.array([0.5 + i], np.float32)
            tensors[f"a.{name}.weight"], tensors[f"a.{name}.weight_scale"] = ("F8_E4M3", codes), ("F32", scale)
            expected.append(E4M3[codes] * scale)
        self.model(tensors)
        self.expect(np.concatenate(expected), "stored", name="a.qk.weight", fuse=["q_proj,k_proj=qk"])

    def test_parts_of_ranks(self):
        self.llama()
        for rank in range(2):
            self.session.load_model(self.folder, prefix=f"r{rank}.", format="f16", rank=rank, ranks=2, fuse=["gate_proj,up_proj=gu"])
        p, whole = "model.layers.0.", self.tensors
        parts = [self.values(f"r{rank}.{p}mlp.down_proj.weight") for rank in range(2)]
        np.testing.assert_array_equal(np.concatenate(parts, 1), whole[p + "mlp.down_proj.weight"].astype(np.float32))
        parts = [self.values(f"r{rank}.{p}self_attn.q_proj.weight") for rank in range(2)]
        np.testing.assert_array_equal(np.concatenate(parts), whole[p + "self_attn.q_proj.weight"].astype(np.float32))
        gate, up = (whole[p + f"mlp.{name}_proj.weight"][128:] for name in ("gate", "up"))
        np.testing.assert_array_equal(self.values(f"r1.{p}mlp.gu.weight"), np.concatenate([gate, up]).astype(np.float32))

    def test_parts_of_codes(self):
        codes, scales = fp8_codes(1, N, K), np.abs(random(2, N // 128, K // 128))
        expected = (E4M3[codes] * np.kron(scales, np.ones((128, 128), np.float32))).astype(np.float32)
        self.model({STEM + ".weight": ("F8_E4M3", codes), STEM + ".weight_scale_inv": ("F32", scales)})
        self.session.load_model(self.folder, format="stored", prefix="rows.", rank=1, ranks=2)
        np.testing.assert_array_equal(self.values("rows." + STEM + ".weight"), expected[128:])
        self.session.load_model(self.folder, format="stored", prefix="columns.", rank=3, ranks=4, columns=["*"])
        np.testing.assert_array_equal(self.values("columns." + STEM + ".weight"), expected[:, 384:])
        self.forget()
        self.refuse(errors.UnsupportedError, "equal parts of a multiple of 128", rank=0, ranks=4)

    def test_replace_swaps_the_whole_model(self):
        self.llama()
        self.session.load_model(self.folder, prefix="m.", format="f16")
        name = "m.model.layers.1.mlp.up_proj.weight"
        before = self.values(name)
        with self.session.open(name) as held:
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            self.llama(layers=1, seed=2)
            with self.assertRaises(errors.ExistsError):
                self.session.load_model(self.folder, prefix="m.", format="f16")
            self.assertEqual(len(self.session.weights()), 14)
            result = self.session.load_model(self.folder, prefix="m.", format="f16", replace=True)
            self.assertEqual((len(result.names), result.dropped), (7, 7))
            self.assertEqual([info.name for info in self.session.weights()], result.names)
            np.testing.assert_array_equal(held.matmul(np.eye(K, dtype=np.float16), y_type="f32").T, before)
        self.assertEqual(self.session.status().weights, 7)

    def test_again_costs_nothing_on_the_device(self):
        self.llama()
        first = self.session.load_model(self.folder, format="int8")
        again = self.session.load_model(self.folder, format="int8", prefix="again.")
        self.assertEqual((first.shared, again.shared), (0, 14))

    def test_all_or_nothing(self):
        self.llama()
        bad = self.tensors["model.layers.1.mlp.up_proj.weight"]
        bad[3, 4] = np.inf
        shard = self.map["model.layers.1.mlp.up_proj.weight"]
        write_safetensors(self.folder / shard, {name: ("F16", self.tensors[name]) for name in self.tensors if self.map[name] == shard})
        self.refuse(errors.BadFileError, "inf in row 3, column 4", format="int8")
        self.assertEqual(self.session.status().weights, 0)
        result = self.session.load_model(self.folder, format="int8", keep_going=True)
        self.assertEqual(len(result.names), 13)
        self.assertEqual([name for name, _ in result.failed], ["model.layers.1.mlp.up_proj.weight"])
        self.assertIn("inf in row 3", result.failed[0][1])

    def test_indices_that_lie(self):
        self.llama()
        some = next(iter(self.map))
        for file, sentence in (("../secret.safetensors", "no file of its folder"), ("/etc/passwd", "no file of its folder"),
                               (".hidden", "no file of its folder"), (7, "no file of its folder"),
                               ("model-00003-of-00003.safetensors", "cannot open")):  # fmt: skip
            self.write_index(dict(self.map, **{some: file}))
            self.refuse((errors.BadFileError, errors.NotFoundError), sentence)
        self.write_index(dict(self.map, **{"model.layers.9.mlp.up_proj.weight": self.map[some]}))
        self.refuse(errors.BadFileError, "the index says that 'model.layers.9.mlp.up_proj.weight' is in")
        other = next(file for file in self.map.values() if file != self.map[some])
        self.write_index(dict(self.map, **{some: other}))
        self.refuse(errors.BadFileError, "does not have it")
        twice = json.dumps({"weight_map": {some: self.map[some]}})[:-2] + f', "{some}": "{other}"}}}}'
        for text in ("", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": 1}', twice):
            (self.folder / "model.safetensors.index.json").write_text(text)
            self.refuse(errors.BadFileError, "index")
        os.mkfifo(self.folder / "fifo.safetensors")
        (self.folder / "folder.safetensors").mkdir()
        (self.folder / "loop.safetensors").symlink_to("loop.safetensors")
        for file, sentence in (("fifo", "no regular file"), ("folder", "no regular file"), ("loop", "cannot open")):
            self.write_index(dict(self.map, **{some: file + ".safetensors"}))
            self.refuse(errors.GemmdError, sentence)

    def test_a_tensor_twice_in_one_file(self):
        entry = '"a.weight":{"dtype":"F16","shape":[1,4],"data_offsets":[%d,%d]}'
        head = ("{" + entry % (0, 8) + "," + entry % (8, 16) + "}").encode()
        (self.folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(16))
        self.refuse(errors.BadFileError, "duplicate")

    def test_files_that_are_no_model(self):
        self.refuse(errors.NotFoundError, "no file of weights")
        self.llama(index=False)
        self.refuse(errors.BadFileError, "no index")
        shutil.copy(self.folder / "model-00001-of-00002.safetensors", self.folder / "model-00002-of-00002.safetensors")
        with self.assertRaisesRegex(errors.BadFileError, "in two of the files"):
            self.session.load_model(*sorted(self.folder.glob("*.safetensors")), format="f16")
        with self.assertRaises(errors.NotFoundError):
            self.session.load_model(self.folder / "nowhere", format="f16")
        (self.folder / "model-00002-of-00002.safetensors").unlink()
        (self.folder / "config.json").write_text("{")
        self.refuse(errors.BadFileError, "no JSON object", format="f16")

    def test_requests_that_cannot_be(self):
        self.llama()
        for kind, sentence, options in (
            (errors.NotFoundError, "matches the pattern 'nothing*'", {"patterns": ["*", "nothing*"]}),
            (errors.NotFoundError, "matches the exclusion 'nothing*'", {"exclude": ["nothing*"]}),
            (errors.NotFoundError, "matches the rule 'nothing*'", {"rules": [("nothing*", "int8")]}),
            (errors.NotFoundError, "there is no x_proj beside it", {"fuse": ["q_proj,x_proj=y"]}),
            (errors.NotFoundError, "no weight of the model is named", {"fuse": ["w_proj,x_proj=y"]}),
            (errors.InvalidError, "a fuse is NAME,NAME=NAME", {"fuse": ["q_proj=y"]}),
            (errors.UnsupportedError, "cannot be one weight", {"fuse": ["q_proj,o_proj=y"]}),
            (errors.ExistsError, "two weights of the model would be named", {"fuse": ["q_proj,k_proj=v_proj"]}),
            (errors.InvalidError, "must end with one of", {"prefix": "abc", "replace": True}),
            (errors.InvalidError, "is too long", {"prefix": "x" * 250}),
            (errors.InvalidError, "rank must be below ranks", {"rank": 2, "ranks": 2}),
            (errors.UnsupportedError, "cannot be cut into 3 equal parts", {"rank": 0, "ranks": 3}),
        ):  # fmt: skip
            with self.subTest(sentence):
                self.refuse(kind, sentence, format="f16", **options)
        with self.assertRaisesRegex(errors.InvalidError, "no rule says"):
            self.session.load_model(self.folder, rules=[("*.mlp.*", "f16")])
        self.model({STEM + ".weight": ("I8", np.ones((N, K), np.int8)), STEM + ".weight_scale": ("F32", np.ones((7, 1), np.float32))},
                   name="one.safetensors")  # fmt: skip
        with self.assertRaisesRegex(errors.UnsupportedError, "is no known scale"):
            self.session.load_model(self.folder / "one.safetensors", format="int8")

    def test_layouts_that_are_mixed(self):
        codes, ones = np.ones((N, K), np.int8), np.ones((N, 1), np.float32)
        self.model({"a.weight": ("F16", random(1, N, K).astype(np.float16)), "b.weight": ("I8", codes), "b.weight_scale": ("F32", ones),
                    "c.weight": ("F8_E4M3", fp8_codes(1, N, K)), "c.weight_scale": ("F32", ones)})  # fmt: skip
        for fuse, format in (("a,b=d", "int8"), ("b,a=d", "stored"), ("b,c=d", "stored"), ("c,b=d", "fp8")):
            with self.subTest(fuse), self.assertRaises(errors.UnsupportedError):
                self.session.load_model(self.folder, format=format, fuse=[fuse], exclude=["c.*" if "c" not in fuse else "a.*"])
            self.assertEqual(self.session.weights(), [])
        self.model({"d.weight": ("F8_E4M3", fp8_codes(1, N, K)), "d.weight_scale": ("F32", ones),
                    "d.weight_scale_inv": ("F32", 1 / ones)}, name="two.safetensors")  # fmt: skip
        with self.assertRaisesRegex(errors.UnsupportedError, "two scales, 'd.weight_scale' and 'd.weight_scale_inv'"):
            self.session.load_model(self.folder / "two.safetensors", format="fp8")

    def test_a_folder_that_changes_meanwhile(self):
        self.llama(layers=24)
        changed = []

        def change(done, total):
            if done * 4 > total and not changed:
                changed.append(done)
                for file in self.folder.glob("*.safetensors"):
                    os.truncate(file, file.stat().st_size // 2)

        with self.assertRaises(errors.BadFileError):
            self.session.load_model(self.folder, format="int8", progress=change)
        self.assertTrue(changed)
        self.assertEqual((self.session.status().weights, self.session.weights()), (0, []))

    def test_a_shard_that_is_written_to_meanwhile(self):
        """Which of its bytes were loaded nobody can say, though each of them is a weight's."""
        self.llama()
        changed = []

        def change(done, total):
            if not changed:
                changed.append(done)
                with open(self.folder / "model-00001-of-00002.safetensors", "r+b") as file:
                    file.seek(-8, os.SEEK_END)
                    file.write(bytes(8))

        self.refuse(errors.BadFileError, "changed", format="f16", progress=change)
        self.assertTrue(changed)
        self.assertEqual(self.session.status().weights, 0)

    def test_a_client_that_dies_leaves_nothing(self):
        self.llama(layers=24)
        script = ("import sys, os, signal, gemmclient\n"
                  "session = gemmclient.connect(sys.argv[1])\n"
                  "def end(done, total):\n"
                  "    if done * 2 > total: os.kill(os.getpid(), signal.SIGKILL)\n"
                  "session.load_model(sys.argv[2], format='int8', progress=end)\n")  # fmt: skip
        path = os.pathsep.join(sys.path)
        ended = subprocess.run([sys.executable, "-c", script, self.daemon.socket, self.folder], env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(ended.returncode, -signal.SIGKILL)
        until = time.monotonic() + PATIENCE_S
        while self.session.status().weights > 0 and time.monotonic() < until:
            time.sleep(0.02)
        self.assertEqual((self.session.status().weights, self.session.weights()), (0, []))

    def test_trirun_by_name(self):
        """A layer t of TriRun's is the weight t.weight of the model; its scales are none."""
        self.model({"t.B": ("I32", np.zeros((K // 16, 256), np.int32)), "t.s": ("F16", np.ones((1, 256), np.float16))})
        self.expect(np.full((256, K), -1, np.float32), "int2", name="t.weight")


class Export(Served):
    def test_what_is_exported_loads_as_it_is(self):
        w = random(1, 130, 260)
        codes, row = np.random.default_rng(1).integers(-127, 128, (64, 256), np.int8), np.ones((64, 1), np.float32)
        order = np.random.default_rng(2).permutation(256).astype(np.int32)
        self.model({"b": ("I8", codes), "b_scale": ("F32", row), "b_input_rotation": ("I32", np.array([64], np.int32)),
                    "b_input_order": ("I32", order), "b_input_scale": ("F32", np.array([0.1], np.float32)),
                    "c": ("U8", codes[:, :64].view(np.uint8)), "c_scale": ("F16", row.astype(np.float16)),
                    "c_input_order": ("I32", order)})  # fmt: skip
        self.session.load_model(self.folder, format="stored", prefix="changed.")
        self.model({"a.weight": ("F32", w)})
        for name, format, scale in (("int8", "int8", "row"), ("one", "int8", "one"), ("fp8", "fp8", "row"), ("block", "fp8", "block"),
                                    ("int2", "int2", "group"), ("wide", "int2", "row"), ("half", "f16", 0), ("short", "bf16", 0), ("four", "int4", "group32-bf16-zeros"), ("rows", "int4", "row-zeros"), ("real", "int4", "group64-zeros-f16"), ("mx", "mxfp4", "group32"), ("nv", "nvfp4", "group16-factors")):  # fmt: skip
            self.session.load_model(self.folder, format=format, scale=scale, prefix=name + ".")
        before = {info.name: (info.hash, info.format, info.scale, info.input) for info in self.session.weights()}
        self.assertEqual(len(before), 15)
        self.assertEqual([before["changed." + name][3] for name in "bc"], [51, 1])
        file = self.folder / "export" / "all.safetensors"
        file.parent.mkdir()
        ctl = [BUILD / "gemmctl", "--socket", self.daemon.socket]
        subprocess.run([*ctl, "export", "*", file], check=True, stdout=subprocess.DEVNULL)
        self.forget()
        self.session.load_model(file, format="stored")
        self.assertEqual({info.name: (info.hash, info.format, info.scale, info.input) for info in self.session.weights()}, before)
        self.assertEqual(subprocess.run([*ctl, "export", "nothing*", file], stderr=subprocess.DEVNULL).returncode, 1)
        self.assertEqual(sorted(path.name for path in file.parent.iterdir()), ["all.safetensors"])


class Full(unittest.TestCase):
    def test_more_than_the_machine_has_half_way(self):
        """The second weight is a hole of 2 TiB in its file, which no machine has room for."""
        with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
            n, path = 1 << 20, Path(folder) / "m.safetensors"
            head = json.dumps({name: {"dtype": "F16", "shape": shape, "data_offsets": offsets} for name, shape, offsets in (
                ("a.weight", [512, 512], [0, 1 << 19]), ("b.weight", [n, n], [1 << 19, (1 << 19) + 2 * n * n]))}).encode()  # fmt: skip
            head += b" " * (-len(head) % 8)
            path.write_bytes(len(head).to_bytes(8, "little") + head)
            try:
                os.truncate(path, 8 + len(head) + (1 << 19) + 2 * n * n)
            except OSError:
                self.skipTest("the file system has no files of 2 TiB")
            with gemmclient.connect(daemon.socket) as session:
                with self.assertRaises(errors.OutOfMemoryError) as caught:
                    session.load_model(path, format="f16")
                self.assertIn("b.weight", str(caught.exception))
                self.assertEqual((session.status().weights, session.weights()), (0, []))
                result = session.load_model(path, format="f16", keep_going=True)
                self.assertEqual((result.names, [name for name, _ in result.failed]), (["a.weight"], ["b.weight"]))

    def test_not_enough_room_half_way(self):
        with Daemon("user_device_bytes_max = 1M\nadmin_group =\n") as daemon, tempfile.TemporaryDirectory() as folder:
            write_safetensors(Path(folder) / "m.safetensors", {f"w{i}.weight": ("F16", random(i, 512, 512).astype(np.float16)) for i in range(4)})
            with gemmclient.connect(daemon.socket) as session:
                if os.getuid() != 0:  # root is an admin, who has no caps
                    with self.assertRaises(errors.GemmdError):
                        session.load_model(folder, format="f16")
                    self.assertEqual((session.status().weights, session.weights()), (0, []))
                session.load_model(folder, format="int8", patterns=["w0.*"])


def gguf_string(text):
    return len(text).to_bytes(8, "little") + text.encode()


def write_gguf(path, architecture, tensors, **numbers):
    """tensors: name -> (type's number, shape as numpy has it, bytes). As ggml's docs/gguf.md says."""
    def u32(value):
        return int(value).to_bytes(4, "little")

    def u64(value):
        return int(value).to_bytes(8, "little")

    pairs = gguf_string("general.architecture") + u32(8) + gguf_string(architecture)
    for key, value in numbers.items():
        pairs += gguf_string(f"{architecture}.{key.replace('__', '.')}") + u32(4) + u32(value)
    words = gguf_string("tokenizer.ggml.tokens") + u32(9) + u32(8) + u64(2) + gguf_string("a") + gguf_string("b")
    infos, data = b"", b""
    for name, (kind, shape, raw) in tensors.items():
        infos += gguf_string(name) + u32(len(shape)) + b"".join(u64(n) for n in reversed(shape)) + u32(kind) + u64(len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    head = b"GGUF" + u32(3) + u64(len(tensors)) + u64(2 + len(numbers)) + pairs + words + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


class Gguf(Served):
    def load(self, tensors, architecture="qwen2", **numbers):
        write_gguf(self.folder / "model.gguf", architecture, tensors, **numbers)

    def test_numbers(self):
        w = short(random(1, N, K))
        half = w.astype(np.float16)
        self.load({"blk.0.ffn_up.weight": (1, w.shape, half.tobytes())})
        self.expect(half.astype(np.float32), "stored")
        self.forget()
        self.load({"blk.0.ffn_up.weight": (30, w.shape, bf16(w).tobytes())})
        self.expect(w, "stored")
        self.forget()
        self.load({"blk.0.ffn_up.weight": (0, w.shape, w.tobytes())})
        self.expect(w, "bf16")
        self.forget()
        self.refuse(errors.UnsupportedError, "no format holds as it is")

    def test_names_and_the_order_of_rows(self):
        """llama.cpp permutes q and k of "llama" (LlamaModel.permute): what is loaded has Hugging Face's order."""
        heads, w = 4, random(1, N, K).astype(np.float16)
        permuted = w.reshape(heads, 2, N // heads // 2, K).swapaxes(1, 2).reshape(w.shape)
        tensors = {f"blk.3.{name}.weight": (1, w.shape, (permuted if name in ("attn_q", "attn_k") else w).tobytes())
                   for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down")}  # fmt: skip
        self.load(tensors | {"token_embd.weight": (1, w.shape, w.tobytes()), "output.weight": (1, w.shape, w.tobytes()),
                             "output_norm.weight": (0, (K,), np.ones(K, np.float32).tobytes())},
                  "llama", attention__head_count=heads, attention__head_count_kv=heads)  # fmt: skip
        result = self.session.load_model(self.folder, format="stored")
        p = "model.layers.3."
        self.assertEqual(result.names, sorted(
            ["lm_head.weight", "model.embed_tokens.weight", *(p + "self_attn." + x + "_proj.weight" for x in "qkvo"),
             p + "mlp.gate_proj.weight", p + "mlp.down_proj.weight"]))  # fmt: skip
        for name in result.names:
            np.testing.assert_array_equal(self.values(name), w.astype(np.float32))
        self.assertEqual(self.session.status().weights, 1)

    def test_refusals(self):
        w = np.zeros((N, K), np.float16)
        self.load({"blk.0.ffn_up.weight": (12, w.shape, bytes(N * K // 256 * 144))})
        self.refuse(errors.UnsupportedError, "is Q4_K, whose groups have a minimum of their own")
        self.load({"blk.0.ffn_up.weight": (14, w.shape, bytes(N * K // 256 * 210))})
        self.refuse(errors.UnsupportedError, "is Q6_K, for which gemmd has no format")
        self.load({"blk.0.ffn_up.weight": (3, w.shape, bytes(N * K // 32 * 20)), "blk.0.ffn_down.weight": (2, w.shape, bytes(N * K // 32 * 18)),
                   "blk.0.ffn_gate.weight": (8, w.shape, bytes(N * K // 32 * 34))})  # fmt: skip
        result = self.session.load_model(self.folder, format="stored", rules=[("*gate*", "int8")], keep_going=True)
        self.assertEqual(result.names, ["model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.gate_proj.weight"])
        self.assertEqual([name for name, _ in result.failed], ["model.layers.0.mlp.up_proj.weight"])
        self.assertIn("is Q4_1, whose groups have a minimum of their own", str(result.failed[0]))
        self.forget()
        self.load({"blk.0.ffn_up.weight": (1, w.shape, w.tobytes())}, "mamba")
        self.refuse(errors.UnsupportedError, "architecture 'mamba'")
        self.load({"blk.0.ffn_up.weight": (1, w.shape, w.tobytes()), "blk.0.ffn_up.scale": (0, (1,), bytes(4))})
        self.refuse(errors.UnsupportedError, "marker", "scale")
        self.load({"blk.0.attn_q.weight": (1, w.shape, w.tobytes())}, "llama")
        self.refuse(errors.BadFileError, "head_count")
        self.load({"blk.0.ffn_up.weight": (1, w.shape, w.tobytes()), "blk.0.ffn_uq.weight": (1, w.shape, w.tobytes())})
        file = self.folder / "model.gguf"
        file.write_bytes(file.read_bytes().replace(b"ffn_uq", b"ffn_up"))
        self.refuse(errors.BadFileError, "is there twice")
        self.load({"blk.0.ffn_up.weight": (1, w.shape, w.tobytes())})
        whole = (self.folder / "model.gguf").read_bytes()
        for cut in (5, 40, 150, len(whole) - 1):
            (self.folder / "model.gguf").write_bytes(whole[:cut])
            self.refuse(errors.BadFileError)

    @unittest.skipUnless(importlib.util.find_spec("gguf"), "the package gguf is not installed")
    def test_blocks_as_ggml_reads_them(self):
        from gguf import GGMLQuantizationType as Type
        from gguf.quants import dequantize, quantize

        w = random(1, N, K)
        ternary = np.random.default_rng(1).integers(-1, 2, (N, K)).astype(np.float32) * np.float32(0.37)
        for kind, values, format in ((Type.TQ1_0, ternary, "stored"), (Type.TQ2_0, ternary, "int2"), (Type.TQ2_0, w, "int2"),
                                     (Type.TQ1_0, w, "int2"), (Type.Q4_0, w, "int4"), (Type.MXFP4, w, "mxfp4")):  # fmt: skip
            raw = quantize(values, kind)
            self.load({"blk.0.ffn_up.weight": (int(kind), w.shape, raw.tobytes())})
            self.expect(dequantize(raw, kind), format)
            self.forget()
        raw = quantize(w, Type.Q8_0)
        self.load({"blk.0.ffn_up.weight": (int(Type.Q8_0), w.shape, raw.tobytes())})
        expected = dequantize(raw, Type.Q8_0)
        self.expect(short_of(expected), "bf16")

    def test_blocks(self):
        """The same, from blocks that are laid out here."""
        rng = np.random.default_rng(3)
        codes, scale = rng.integers(0, 3, (N, K)).astype(np.uint8), np.float16(0.37)
        expected = (codes.astype(np.float32) - 1) * np.float32(scale)
        blocks = codes.reshape(-1, 256)
        halves = blocks.reshape(-1, 2, 4, 32)
        tq2 = (halves[:, :, 0] | halves[:, :, 1] << 2 | halves[:, :, 2] << 4 | halves[:, :, 3] << 6).reshape(-1, 64)
        d = np.full((len(blocks), 1), scale).view(np.uint8)
        self.load({"blk.0.ffn_up.weight": (35, (N, K), np.concatenate([tq2, d], 1).tobytes())})
        self.expect(expected, "stored")
        self.forget()

        def base3(part, digits):
            number = sum(part[:, j].astype(np.uint32) * 3 ** (4 - j) for j in range(digits))
            return (number * 256 + 242) // 243

        tq1 = np.concatenate([base3(blocks[:, :160].reshape(-1, 5, 32), 5), base3(blocks[:, 160:240].reshape(-1, 5, 16), 5),
                              base3(blocks[:, 240:].reshape(-1, 4, 4), 4)], 1).astype(np.uint8)  # fmt: skip
        self.load({"blk.0.ffn_up.weight": (34, (N, K), np.concatenate([tq1, d], 1).tobytes())})
        self.expect(expected, "stored")
        self.forget()
        q = rng.integers(0, 16, (N * K // 32, 32)).astype(np.uint8)
        halves, d = q[:, :16] | q[:, 16:] << 4, random(5, len(q), 1).astype(np.float16)  # of either sign
        self.load({"blk.0.ffn_up.weight": (2, (N, K), np.concatenate([d.view(np.uint8), halves], 1).tobytes())})
        self.expect(((q.astype(np.float32) - 8) * d.astype(np.float32)).reshape(N, K), "stored")
        self.forget()
        e = rng.integers(0, 150, (len(q), 1)).astype(np.uint8)
        values = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)[q] * np.exp2(e.astype(np.float32) - 128)
        self.load({"blk.0.ffn_up.weight": (39, (N, K), np.concatenate([e, halves], 1).tobytes())})
        self.expect(values.reshape(N, K), "stored")
        self.forget()
        for kind, head in ((2, np.float16(np.inf).tobytes()), (2, np.float16(np.nan).tobytes()), (39, b"\xff")):
            self.load({"blk.0.ffn_up.weight": (kind, (1, 32), head + bytes(16))})
            self.refuse(errors.BadFileError, "element 0 is")
        q = rng.integers(-127, 128, (N * K // 32, 32)).astype(np.int8)
        q[:, 0] = 127  # then INT8 of it has a scale of a power of two, and the same codes
        raw = np.concatenate([np.full((len(q), 1), np.float16(0.5)).view(np.uint8), q.view(np.uint8)], 1)
        self.load({"blk.0.ffn_up.weight": (8, (N, K), raw.tobytes())})
        self.expect(q.reshape(N, K).astype(np.float32) * np.float32(0.5), "int8")


def short_of(values):
    """Rounded to bf16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)).view(np.float32)


if __name__ == "__main__":
    unittest.main()
