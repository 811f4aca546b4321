#!/usr/bin/python3
"""Files that the tools themselves write, against what their own code says the weights in them are.

`make test-importers` runs this with the tools from PyPI; without one its tests are skipped."""

import importlib.util
import json
import tempfile
import unittest
from pathlib import Path

import numpy as np
from support import random
from test_models import K, N, STEM, Served

from gemmclient import errors


def needs(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def layer(n=N, k=K, seed=1, dtype="bfloat16"):
    """A model of one linear layer, named as layers of Hugging Face's are."""
    import torch

    class Holder(torch.nn.Module):
        pass

    linear = torch.nn.Linear(k, n, bias=False, dtype=getattr(torch, dtype))
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(random(seed, n, k)))
    at = linear
    for name in reversed(STEM.split(".")):
        holder = Holder()
        holder.add_module(name, at)
        at = holder
    return at, linear


class Written(Served):
    def save(self, tensors, config=None, metadata=None):
        from safetensors.torch import save_file

        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, self.folder / "model.safetensors", metadata=metadata)
        if config is not None:
            (self.folder / "config.json").write_text(json.dumps({"quantization_config": config}))

    def near(self, y, expected, most):
        expected = np.asarray(expected, np.float64)
        self.assertLess(np.linalg.norm(y - expected) / np.linalg.norm(expected), most)


@needs("torch", "safetensors", "compressed_tensors")
class CompressedTensors(Written):
    def compressed(self, weights, activations, dtype="float32"):
        """As llm-compressor does it: scales are observed, the layer is compressed, the configuration is saved."""
        import torch
        from compressed_tensors.compressors import ModelCompressor
        from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme, QuantizationStatus, apply_quantization_config
        from compressed_tensors.quantization.utils import calculate_qparams

        model, linear = layer(dtype=dtype)
        scheme = QuantizationScheme(targets=["Linear"], weights=weights, input_activations=activations)
        config = QuantizationConfig(config_groups={"group_0": scheme}, quantization_status=QuantizationStatus.FROZEN)
        apply_quantization_config(model, config)
        w = linear.weight.detach()
        whole, grouped = scheme.weights.strategy == "tensor", w.reshape(N, -1, scheme.weights.group_size or K)
        low, high = (w.min().reshape(1), w.max().reshape(1)) if whole else (grouped.amin(2), grouped.amax(2))
        scale, zero = calculate_qparams(low, high, scheme.weights)
        linear.weight_scale.data = scale.to(linear.weight_scale.dtype).reshape(linear.weight_scale.shape)
        if hasattr(linear, "weight_zero_point"):
            linear.weight_zero_point.data = zero.to(linear.weight_zero_point.dtype).reshape(linear.weight_zero_point.shape)
        if hasattr(linear, "input_scale"):
            linear.input_scale.data = torch.full_like(linear.input_scale, 2.0**-5)
        compressor = ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        (self.folder / "config.json").write_text("{}")
        compressor.update_config(self.folder)
        self.save({name: tensor.clone() for name, tensor in model.state_dict().items()})
        compressor.decompress_model(model)
        return linear.weight.detach().float().numpy()

    def arguments(self, bits, kind, strategy, dynamic=False):
        from compressed_tensors.quantization import QuantizationArgs

        return QuantizationArgs(num_bits=bits, type=kind, strategy=strategy, symmetric=True, dynamic=dynamic)

    def test_dynamic(self):
        for bits, kind, strategy, format in ((8, "int", "channel", "int8"), (8, "int", "tensor", "int8"), (8, "float", "channel", "fp8"),
                                             (8, "float", "tensor", "fp8")):  # fmt: skip
            w = self.compressed(self.arguments(bits, kind, strategy), self.arguments(bits, kind, "token", True))
            self.expect(w, format)
            self.assertEqual(self.session.weights()[0].input, 0)
            self.forget()

    def test_packed_codes_of_4_bits(self):
        """W4A16: its decompressed weight is the same numbers, rounded to the weight's type."""
        import torch
        from compressed_tensors.quantization import QuantizationArgs

        for group, symmetric in ((128, True), (32, False), (64, True), (None, False)):
            with self.subTest(group=group, symmetric=symmetric):
                about = {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
                weights = QuantizationArgs(num_bits=4, type="int", symmetric=symmetric, **about)
                w = self.compressed(weights, None, dtype="bfloat16")
                self.session.load_model(self.folder, format="int4")
                own = torch.from_numpy(self.values(STEM + ".weight")).bfloat16().float().numpy()
                np.testing.assert_array_equal(own, w)
                self.forget()

    def test_static(self):
        from compressed_tensors.quantization.lifecycle.forward import fake_quantize

        import torch

        for kind in ("int", "float"):
            activations = self.arguments(8, kind, "tensor")
            w = self.compressed(self.arguments(8, kind, "channel"), activations)
            x = random(3, 7, K) * 3
            scale = torch.tensor([2.0**-5])
            seen = fake_quantize(torch.from_numpy(x), scale, torch.zeros(1), activations).numpy()
            if kind == "int":
                seen = np.maximum(seen, -127 * 2.0**-5)  # gemmd's codes end at -127
            self.session.load_model(self.folder, format="stored")
            with self.session.open(STEM + ".weight") as weight:
                self.assertEqual(weight.info.input, 2)
                self.near(weight.matmul(x, y_type="f32"), seen.astype(np.float64) @ w.T.astype(np.float64), 3e-4)
            self.forget()


@needs("torch", "safetensors", "torchao")
class TorchAo(Written):
    def quantized(self, config):
        from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
        from torchao.quantization import quantize_

        model, linear = layer()
        quantize_(model, config)
        tensors, metadata = flatten_tensor_state_dict(model.state_dict())
        self.save(tensors, {"quant_method": "torchao"}, metadata)
        return linear.weight

    def test_int8_and_fp8(self):
        from torchao.quantization import Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig

        for config, format in ((Int8DynamicActivationInt8WeightConfig(), "int8"), (Int8WeightOnlyConfig(), "stored"), (Float8WeightOnlyConfig(), "fp8")):
            weight = self.quantized(config)
            codes, scale = weight.qdata, weight.scale
            self.expect((codes.float() * scale.float()).numpy(), format)
            # its own dequantization rounds the same product to the weight's type
            self.assertTrue((weight.dequantize().float() == (codes.float() * scale.float()).to(weight.dtype).float()).all())
            self.forget()

    def test_what_is_not_taken(self):
        from safetensors.torch import load_file
        from torchao.quantization import Int8WeightOnlyConfig

        self.quantized(Int8WeightOnlyConfig())
        tensors = load_file(self.folder / "model.safetensors")
        whole = dict(tensors)
        tensors[STEM + "._weight_zero_point"][5] = 3
        self.save(tensors)
        self.refuse(errors.UnsupportedError, "_weight_zero_point", "element 5 is 3")
        self.save(dict(whole, **{STEM + "._weight_act_pre_scale": whole[STEM + "._weight_scale"].clone()}))
        self.refuse(errors.UnsupportedError, "_weight_act_pre_scale")
        packed = dict(whole)
        packed[STEM + "._weight_qdata"] = packed[STEM + "._weight_qdata"].view(__import__("torch").uint8)
        self.save(packed)
        self.refuse(errors.UnsupportedError, "torchao's, of U8")


@needs("torch", "safetensors", "comfy_kitchen")
class Comfy(Written):
    def test_int8_rows_and_rotated(self):
        import comfy_kitchen
        import torch
        from comfy_kitchen.tensor import TensorWiseINT8Layout

        w, x = torch.from_numpy(random(1, N, K)), torch.from_numpy(random(2, 5, K))
        for rotated, group in ((False, 0), (True, 256), (True, 64), (True, 16)):
            about = {"convrot": True, "convrot_groupsize": group} if rotated else {}
            codes, params = TensorWiseINT8Layout.quantize(w, per_channel=True, **about)
            marker = json.dumps({"format": "int8_tensorwise", "per_row": True, **about}).encode()
            self.save({STEM + ".weight": codes, STEM + ".weight_scale": params.scale, STEM + ".comfy_quant": torch.tensor(list(marker), dtype=torch.uint8)})
            self.session.load_model(self.folder, format="stored")
            expected = TensorWiseINT8Layout.dequantize(codes, params).float().numpy()
            np.testing.assert_allclose(self.values(STEM + ".weight"), expected, rtol=1e-4, atol=1e-5)
            with comfy_kitchen.use_backend("eager") if hasattr(comfy_kitchen, "use_backend") else comfy_kitchen.registry.registry.use_backend("eager"):
                own = comfy_kitchen.int8_linear(x, codes, params.scale, None, torch.float32, convrot=rotated, convrot_groupsize=group or 256)
            with self.session.open(STEM + ".weight") as weight:
                self.near(weight.matmul(x.numpy(), y_type="f32"), own.numpy(), 2e-3)  # where the sums of a rotation round, a code differs
            self.forget()


@needs("torch", "safetensors", "transformers", "auto_gptq")
class AutoGptq(Written):
    def module(self, path):
        """A file of auto-gptq's by itself: the package as a whole wants a transformers of its time."""
        where = Path(importlib.util.find_spec("auto_gptq").submodule_search_locations[0]) / path
        spec = importlib.util.spec_from_file_location(where.stem, where)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_files_of_its_packer(self):
        """Scales and zero points by its Quantizer, packed by its QuantLinear; W is what that multiplies with."""
        import torch

        Quantizer = self.module("quantization/quantizer.py").Quantizer
        QuantLinear = self.module("nn_modules/qlinear/qlinear_cuda_old.py").QuantLinear
        for bits, group, format in ((2, 128, "int2"), (2, -1, "stored"), (4, 128, "int4"), (4, 32, "int4"), (4, -1, "stored"), (8, -1, "int8")):
            width = K if group == -1 else group
            linear = torch.nn.Linear(K, N, bias=False, dtype=torch.float16)
            w, scales, zeros = torch.from_numpy(random(bits, N, K)), [], []
            for begin in range(0, K, width):
                quantizer = Quantizer()
                quantizer.configure(bits, perchannel=True, sym=True)
                quantizer.find_params(w[:, begin : begin + width], weight=True)
                w[:, begin : begin + width] = quantizer.quantize(w[:, begin : begin + width])
                scales.append(quantizer.scale)
                zeros.append(quantizer.zero)
            linear.weight.data = w.half()
            packed = QuantLinear(bits, group, K, N, False)
            packed.pack(linear, torch.cat(scales, 1), torch.cat(zeros, 1), None)
            self.save({f"{STEM}.{name}": value for name, value in packed.state_dict().items()},
                      {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False, "sym": True})  # fmt: skip
            packed.scales = packed.scales.float()  # so that the reference rounds nothing
            self.expect(packed(torch.eye(K)).T.numpy(), format)
            self.forget()


@needs("torch", "safetensors", "awq")
class Awq(Written):
    def test_any_words_by_its_dequantization(self):
        import torch

        where = Path(importlib.util.find_spec("awq").submodule_search_locations[0]) / "utils/packing_utils.py"
        spec = importlib.util.spec_from_file_location("packing_utils", where)
        own = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(own)
        for group in (32, 128, K):
            generator = torch.Generator().manual_seed(group)
            qweight, qzeros = (torch.randint(-(2**31), 2**31, (rows, N // 8), generator=generator, dtype=torch.int32) for rows in (K, K // group))
            scales = torch.rand(K // group, N, generator=generator).half()
            self.save({f"{STEM}.qweight": qweight, f"{STEM}.qzeros": qzeros, f"{STEM}.scales": scales},
                      {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"})  # fmt: skip
            self.expect(own.dequantize_gemm(qweight, qzeros, scales.float(), 4, group).T.numpy(), "int4")
            self.forget()


@needs("torch", "safetensors", "transformers", "gptqmodel", "pcre")
class GptqModel(Written):
    def test_files_of_its_packer(self):
        """Codes packed by its TorchLinear, in order and in act order; W is what that says it is."""
        import torch
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear

        for bits, group, act, format in ((2, 128, False, "int2"), (2, 128, True, "int2"), (2, -1, False, "stored"), (4, 128, False, "int4"),
                                         (4, 32, True, "int4"), (4, -1, False, "stored"), (8, -1, False, "int8")):  # fmt: skip
            with self.subTest(bits=bits, group=group, act=act):
                width = K if group == -1 else group
                zero, generator = 1 << (bits - 1), torch.Generator().manual_seed(bits + act)
                order = torch.randperm(K, generator=generator) if act else torch.arange(K)
                index = torch.empty(K, dtype=torch.int32)
                index[order] = torch.arange(K, dtype=torch.int32) // width
                scales = (torch.rand(N, K // width, generator=generator) + 0.5).half().float()
                codes = torch.randint(1 if bits == 8 else 0, 1 << bits, (N, K), generator=generator)
                linear = torch.nn.Linear(K, N, bias=False)
                linear.weight.data = scales[:, index.long()] * (codes - zero)
                packed = TorchLinear(bits, group, True, act, K, N)
                packed.pack_original(linear, scales, torch.full_like(scales, zero), index)
                packed.post_init()
                self.save({f"{STEM}.{name}": getattr(packed, name) for name in ("qweight", "qzeros", "scales", "g_idx")},
                          {"quant_method": "gptq", "checkpoint_format": "gptq_v2", "bits": bits, "group_size": group, "desc_act": act, "sym": True})  # fmt: skip
                packed.scales = packed.scales.float()  # so that the reference rounds nothing
                own = packed.dequantize_weight().T.numpy()
                np.testing.assert_array_equal(own, linear.weight.detach().numpy())
                self.session.load_model(self.folder, format=format)
                with self.session.open(STEM + ".weight") as weight:
                    self.assertEqual(bool(weight.info.input), act)
                np.testing.assert_array_equal(self.values(STEM + ".weight"), own)
                self.forget()


@needs("torch", "safetensors", "modelopt")
class ModelOpt(Written):
    def test_fp8_as_it_exports(self):
        """mtq.quantize and the export's own functions for scales and codes, and its own dequantization of these."""
        import modelopt.torch.quantization as mtq
        import torch
        from modelopt.torch.export import quant_utils

        model, linear = layer()
        x = torch.from_numpy(random(2, 64, K)).bfloat16()
        mtq.quantize(model, mtq.FP8_DEFAULT_CFG, lambda _: linear(x))
        scale, input_scale = quant_utils.get_weight_scaling_factor(linear), quant_utils.get_activation_scaling_factor(linear)
        codes = quant_utils.to_quantized_weight(linear.weight, scale, quant_utils.get_quantization_format(linear))
        self.assertEqual(codes.dtype, torch.float8_e4m3fn)
        self.save({STEM + ".weight": codes, STEM + ".weight_scale": scale, STEM + ".input_scale": input_scale})
        about = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}
        (self.folder / "hf_quant_config.json").write_text(json.dumps(about))
        self.session.load_model(self.folder, format="stored")
        with self.session.open(STEM + ".weight") as weight:
            rows = x.float().numpy()
            self.near(weight.matmul(rows, y_type="f32"), linear(x).detach().float().numpy(), 1e-2)  # its product is bf16
            # the identity by its codes, times the static scale of x
            eye = np.eye(K, dtype=np.float32) * np.float32(256) * input_scale.item()
            values = weight.matmul(eye, y_type="f32").T / (np.float32(256) * input_scale.item())
            np.testing.assert_allclose(values, (codes.float() * scale.float()).detach().numpy(), rtol=2e-6)

    def test_nvfp4_by_its_own_tensors(self):
        """Its quantizer's packed codes and scales, and its own dequantization of these."""
        import torch
        from modelopt.torch.quantization.qtensor import NVFP4QTensor

        w = torch.from_numpy(random(3, N, K))
        quantized, scales, whole = NVFP4QTensor.quantize(w, 16)
        self.save({STEM + ".weight": quantized._quantized_data, STEM + ".weight_scale": scales, STEM + ".weight_scale_2": whole.reshape(1)})
        self.session.load_model(self.folder, format="stored")
        with self.session.open(STEM + ".weight") as weight:
            values = weight.matmul(np.eye(K, dtype=np.float32), y_type="f32").T
        expected = quantized.dequantize(scale=scales, double_scale=whole, block_sizes={-1: 16}, dtype=torch.float32)
        np.testing.assert_allclose(values, expected.float().numpy(), rtol=2**-23)  # it rounds scale times factor first


@needs("torch", "safetensors", "transformers")
class Transformers(Written):
    def test_bitnet(self):
        """W is what its layers of both conventions multiply with: one divides by the scale, the other multiplies."""
        import torch
        from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights, unpack_weights

        codes = torch.randint(-1, 2, (N, K), generator=torch.Generator().manual_seed(1))
        packed = pack_weights(codes.to(torch.bfloat16))
        self.assertTrue((unpack_weights(packed, torch.bfloat16) == codes).all())
        for name, kind, values in (("bitlinear", BitLinear, packed), ("autobitlinear", AutoBitLinear, codes.float())):
            with self.subTest(name), torch.inference_mode():
                own = kind(K, N, bias=False, dtype=torch.float32)
                own.weight, own.weight_scale = torch.nn.Parameter(values, requires_grad=False), torch.tensor([4.0])
                torch._dynamo.config.disable = True  # of its two small functions, which a compiler would be started for
                expected = own(torch.eye(K)).T.numpy()
                self.save({STEM + ".weight": packed, STEM + ".weight_scale": own.weight_scale.bfloat16()},
                          {"quant_method": "bitnet", "linear_class": name, "quantization_mode": "offline"})  # fmt: skip
                self.expect(expected, "stored")
                self.assertEqual(np.abs(expected).max(), 0.25 if name == "bitlinear" else 4)
                self.forget()

    def test_fp8_of_blocks(self):
        """What FineGrainedFP8Config keeps, and what its own code makes of it."""
        import torch

        codes = torch.from_numpy(random(1, N, K)).to(torch.float8_e4m3fn)
        scales = torch.from_numpy(np.abs(random(2, N // 128, K // 128)))
        self.save({STEM + ".weight": codes, STEM + ".weight_scale_inv": scales},
                  {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})  # fmt: skip
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize

        own = Fp8Dequantize(None)._dequantize_one(codes, scales, torch.float32)
        self.expect(own.numpy(), "fp8")

    def test_mxfp4_of_gpt_oss(self):
        import torch
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors

        from gemmclient import experts

        generator = torch.Generator().manual_seed(1)
        blocks = torch.randint(0, 256, (2, N, K // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(110, 140, (2, N, K // 32), generator=generator, dtype=torch.uint8)
        name = STEM + ".experts.gate_up_proj"
        self.save({name + "_blocks": blocks, name + "_scales": scales}, {"quant_method": "mxfp4"})
        own = convert_moe_packed_tensors(blocks, scales).float()
        self.session.load(self.folder / "model.safetensors", tensor=name + "_blocks", name="w", format="mxfp4", experts=2)
        with self.session.open("w") as weight:
            for e in range(2):
                y = experts.matmul(weight, np.eye(K, dtype=np.float32), np.full((K, 1), e, np.int32), sum=False, y_type="f32")
                np.testing.assert_array_equal(y.reshape(K, N), own[e].reshape(K, N).numpy())

    def test_a_model_that_save_pretrained_writes(self):
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(1)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                                             num_attention_heads=4, num_key_value_heads=2)).to(torch.bfloat16)  # fmt: skip
        model.save_pretrained(self.folder, max_shard_size="200KB")
        self.assertTrue((self.folder / "model.safetensors.index.json").exists())
        result = self.session.load_model(self.folder, format="stored", exclude=["*embed*", "lm_head*"])
        self.assertEqual(len(result.names), 14)
        state = model.state_dict()
        for name in result.names:
            np.testing.assert_array_equal(self.values(name), state[name].float().numpy())


@needs("gguf")
class Gguf(Written):
    def test_files_of_its_writer(self):
        from gguf import GGUFReader, GGUFWriter
        from gguf import GGMLQuantizationType as Type
        from gguf.quants import dequantize, quantize

        w = random(1, N, K)
        ternary = np.random.default_rng(1).integers(-1, 2, (N, K)).astype(np.float32) * np.float32(0.25)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            writer = GGUFWriter(str(path), "qwen2")
            writer.add_block_count(1)
            kept = {}
            for name, kind, values in (("ffn_up", Type.F16, w), ("ffn_gate", Type.BF16, w), ("ffn_down", Type.TQ1_0, ternary),
                                       ("attn_q", Type.TQ2_0, ternary), ("attn_k", Type.F32, w), ("attn_v", Type.Q4_0, w),
                                       ("attn_output", Type.MXFP4, w)):  # fmt: skip
                raw = quantize(values, kind)
                writer.add_tensor(f"blk.0.{name}.weight", raw, raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            for tensor in GGUFReader(str(path)).tensors:
                kept[tensor.name] = dequantize(np.asarray(tensor.data), tensor.tensor_type).reshape(N, K)
            self.session.load_model(path, rules=[("*k_proj*", "bf16"), ("*", "stored")])
        names = {"ffn_up": "mlp.up_proj", "ffn_gate": "mlp.gate_proj", "ffn_down": "mlp.down_proj", "attn_q": "self_attn.q_proj",
                 "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj"}  # fmt: skip
        for name, own in names.items():
            np.testing.assert_array_equal(self.values(f"model.layers.0.{own}.weight"), kept[f"blk.0.{name}.weight"])


if __name__ == "__main__":
    unittest.main()
