#!/usr/bin/python3
"""The vLLM plugin in the vLLM package, without a server: found, registered, and its layers computed, by a real gemmd.
Python is one that has vllm and gemmclient installed."""

import os
import unittest

from support import Daemon, int8_product, worst_row

import numpy as np

try:
    import torch
    import vllm.plugins
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.layers.fused_moe import FusedMoEFactory
    from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, ReplicatedLinear
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config
except ImportError as error:
    raise SystemExit(f"test_vllm.py needs vllm: {error}") from None

import gemmclient

K, N = 64, 96
K4 = 256  # of weights of 4 bits
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]  # its order of the elements in a word
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def packed(codes, along):
    """Eight a word, the first in the lowest bits."""
    parts = codes.unfold(along, 8, 8).to(torch.int32) & 15
    return (parts << torch.arange(0, 32, 4, dtype=torch.int32)).sum(-1, dtype=torch.int32)



class Plugin(unittest.TestCase):
    layers = []  # of experts, by name

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        os.environ.update(GEMMD_SOCKET=cls.daemon.socket, GEMMD_VLLM_KERNELS="first")
        vllm.plugins.load_general_plugins()
        cls.config = VllmConfig(device_config=DeviceConfig("cpu"))
        with set_current_vllm_config(cls.config):
            rendezvous = f"file://{cls.daemon.folder}/rendezvous"
            init_distributed_environment(1, 0, rendezvous, 0, backend="gloo")
            initialize_model_parallel(1, backend="gloo")

    def layer(self, kind, *sizes, dtype=torch.float32, bias=True, quantization="gemmd_int8", **options):
        torch.manual_seed(1)
        with set_current_vllm_config(self.config):
            layer = kind(
                *sizes, bias=bias, params_dtype=dtype, disable_tp=True, prefix="model.layers.0.proj",
                quant_config=get_quantization_config(quantization).from_config({}), **options,
            )  # fmt: skip
        weight = torch.randn(layer.weight.shape).to(dtype)
        layer.weight.data.copy_(weight)
        if bias:
            layer.bias.data.copy_(torch.randn(layer.bias.shape))
        layer.quant_method.process_weights_after_loading(layer)
        self.assertEqual(layer.weight.numel(), 0)
        return layer, weight

    def check(self, layer, weight, dtype, bound):
        x = torch.randn(5, weight.shape[1]).to(dtype)
        with torch.inference_mode():
            y, _ = layer(x)
        reference = int8_product(x.float().numpy(), weight.float().numpy())
        if layer.bias is not None:
            reference += layer.bias.detach().float().numpy()
        self.assertEqual(y.dtype, dtype)
        self.assertLess(worst_row(y.float().numpy(), reference), bound)

    def test_vllm_has_found_it(self):
        self.assertLessEqual({"gemmd_int8", "gemmd_fp8", "gemmd_int2"}, set(QUANTIZATION_METHODS))
        self.assertEqual(get_quantization_config("gemmd_fp8")().get_name(), "gemmd_fp8")
        import gemmclient.vllm

        gemmclient.vllm.register()  # again, as vLLM may

    def test_layers_of_each_kind(self):
        self.check(*self.layer(ReplicatedLinear, K, N), torch.float32, 1e-6)
        self.check(*self.layer(ColumnParallelLinear, K, N, bias=False), torch.float32, 1e-6)
        self.check(*self.layer(QKVParallelLinear, K, 16, 4, total_num_kv_heads=2), torch.float32, 1e-6)

    def experts(self, count, top, n, dtype, quantization="gemmd_int8", **options):
        torch.manual_seed(1)
        self.layers.append(f"model.layers.{len(self.layers)}.mlp.experts")  # vLLM takes a name once
        with set_current_vllm_config(self.config):
            layer = FusedMoEFactory(
                num_experts=count, top_k=top, hidden_size=K, intermediate_size=n, params_dtype=dtype,
                quant_config=get_quantization_config(quantization).from_config({}), prefix=self.layers[-1], **options,
            ).routed_experts  # fmt: skip
        weights = [torch.randn(count, 2 * n, K).to(dtype), torch.randn(count, K, n).to(dtype)]
        layer.w13_weight.data.copy_(weights[0])
        layer.w2_weight.data.copy_(weights[1])
        layer.quant_method.process_weights_after_loading(layer)
        self.assertEqual(layer.w13_weight.numel() + layer.w2_weight.numel(), 0)
        return layer, weights

    def layer_of_experts(self, x, ids, routing, weights):
        """In float32, x rounded to 8 bits before each product as int8_product does."""
        y = np.zeros(x.shape, np.float32)
        for m, t in np.ndindex(*ids.shape):
            if ids[m, t] < 0:
                continue
            v = int8_product(x[m : m + 1], weights[0][ids[m, t]].float().numpy())
            gate, up = np.split(v, 2, 1)
            y[m] += routing[m, t] * int8_product(gate / (1 + np.exp(-gate)) * up, weights[1][ids[m, t]].float().numpy())[0]
        return y

    def test_experts(self):
        layer, weights = self.experts(6, 2, 48, torch.float32)
        x, ids, routing = torch.randn(5, K), torch.randint(0, 6, (5, 2)), torch.rand(5, 2)
        with torch.inference_mode():
            y = layer.forward_modular(x, routing, ids)
        self.assertLess(worst_row(y.numpy(), self.layer_of_experts(x.numpy(), ids.numpy(), routing.numpy(), weights)), 1e-5)

    def test_experts_of_another_rank_are_skipped(self):
        layer, weights = self.experts(6, 2, 48, torch.float32)
        layer._expert_map = torch.tensor([0, -1, 2, -1, 4, -1], dtype=torch.int32)
        x, ids, routing = torch.randn(5, K), torch.randint(0, 6, (5, 2)), torch.rand(5, 2)
        ids[:, 0] = 4
        with torch.inference_mode():
            y = layer.forward_modular(x, routing, ids)
        own = np.where(ids.numpy() % 2 == 0, ids.numpy(), -1)
        self.assertLess(worst_row(y.numpy(), self.layer_of_experts(x.numpy(), own, routing.numpy(), weights)), 1e-5)

    def test_experts_that_gemmd_does_not_compute(self):
        for options in (dict(activation="swigluoai"), dict(has_bias=True), dict(swiglu_limit=7.0)):
            with self.assertRaises(gemmclient.UnsupportedError):
                self.experts(4, 2, 48, torch.float32, **options)

    def test_compiled_without_a_break_in_the_graph(self):
        layer, weight = self.layer(ReplicatedLinear, K, N)
        x = torch.randn(5, K)
        with torch.inference_mode():
            expected, _ = layer(x)
            compiled = torch.compile(lambda rows: layer.quant_method.apply(layer, rows, layer.bias), fullgraph=True)
            self.assertTrue(torch.equal(compiled(x), expected))

    def test_weights_are_borrowed(self):
        layer, _ = self.layer(ReplicatedLinear, K, N)
        layer(torch.randn(5, K))
        with gemmclient.connect(self.daemon.socket) as session:
            self.assertGreater(session.stat(layer.gemmd.name).borrows, 0)

    def test_the_types_that_models_have(self):
        self.check(*self.layer(ReplicatedLinear, K, N, dtype=torch.bfloat16), torch.bfloat16, 5e-3)
        self.check(*self.layer(ReplicatedLinear, K, N, dtype=torch.float16), torch.float16, 1e-3)

    def test_a_layer_that_was_loaded_before_is_found(self):
        self.layer(ReplicatedLinear, K, N, bias=False, quantization="gemmd_fp8")
        loads = self.daemon.log().count('loaded "vllm/')
        self.layer(ReplicatedLinear, K, N, bias=False, quantization="gemmd_fp8")
        self.assertEqual(self.daemon.log().count('loaded "vllm/'), loads)
        with gemmclient.connect(self.daemon.socket) as session:
            self.assertEqual(len(session.weights("vllm/model.layers.0.proj.fp8.*")), 1)

    # ---- checkpoints of 4 bits

    def layer_of_codes(self, settings, quantization, dtype, fill):
        """A layer as a checkpoint's configuration makes it; `fill` gives its parameters their values."""
        with set_current_vllm_config(self.config):
            layer = ReplicatedLinear(
                K4, N, bias=False, params_dtype=dtype, prefix="model.layers.0.four", disable_tp=True,
                quant_config=get_quantization_config(quantization).from_config(settings),
            )  # fmt: skip
        for name, value in fill.items():
            held = getattr(layer, name)
            self.assertEqual(tuple(held.shape), tuple(value.shape), name)
            held.data.copy_(value)
        layer.quant_method.process_weights_after_loading(layer)
        self.assertIn("gemmd", layer.__dict__["_modules"])
        for name in fill:
            self.assertLess(getattr(layer, name, torch.empty(0)).numel(), 3, f"{name} is still here")
        return layer

    def check_values(self, layer, values, dtype):
        x = torch.randn(5, K4).to(dtype)
        with torch.inference_mode():
            y, _ = layer(x)
        expected = x.float() @ values.float().T
        self.assertLess(worst_row(y.float().numpy(), expected.numpy()), 5e-3 if dtype == torch.bfloat16 else 1e-3)

    def four_bits(self, group, dtype, zeros):
        """Codes [n, k], scales and zero points [n, groups], and the values that they are."""
        torch.manual_seed(group)
        codes = torch.randint(0, 16, (N, K4), dtype=torch.int32)
        scales = (torch.rand(N, K4 // group) / 16 + 0.01).to(dtype)
        points = torch.randint(0, 16, scales.shape, dtype=torch.int32) if zeros else torch.full_like(scales, 8)
        wide = [one.float().repeat_interleave(group, 1) for one in (scales, points)]
        return codes, scales, points.to(torch.int32), (codes.float() - wide[1]) * wide[0]

    def test_pack_quantized_checkpoints(self):
        for group, symmetric, dtype in ((128, True, torch.bfloat16), (32, False, torch.float16), (K4, True, torch.float16)):
            weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "dynamic": False}
            weights.update({"strategy": "channel"} if group == K4 else {"strategy": "group", "group_size": group})
            settings = {
                "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"],
            }  # fmt: skip
            codes, scales, points, values = self.four_bits(group, dtype, not symmetric)
            fill = {"weight_packed": packed(codes, 1), "weight_scale": scales}
            if not symmetric:
                fill["weight_zero_point"] = packed(points, 0)
            with self.subTest(group=group):
                self.check_values(self.layer_of_codes(settings, "compressed-tensors", dtype, fill), values, dtype)

    def test_gptq_checkpoints(self):
        settings = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": True}
        codes, scales, points, values = self.four_bits(64, torch.float16, False)
        fill = {"qweight": packed(codes.T, 0), "scales": scales.T, "qzeros": packed(points.T - 1, 1)}
        self.check_values(self.layer_of_codes(settings, "gptq", torch.float16, fill), values, torch.float16)

    def test_awq_checkpoints(self):
        settings = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
        codes, scales, points, values = self.four_bits(128, torch.bfloat16, True)
        interleaved = [one.T.reshape(one.shape[1], -1, 8)[:, :, AWQ].reshape(one.shape[1], -1) for one in (codes, points)]
        fill = {"qweight": packed(interleaved[0], 1), "scales": scales.T, "qzeros": packed(interleaved[1], 1)}
        self.check_values(self.layer_of_codes(settings, "awq", torch.bfloat16, fill), values, torch.bfloat16)

    def test_mxfp4_checkpoints(self):
        weights = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32,
                   "scale_dtype": "torch.uint8", "zp_dtype": "torch.uint8"}  # fmt: skip
        settings = {
            "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"],
        }  # fmt: skip
        torch.manual_seed(4)
        codes, scales = torch.randint(0, 16, (N, K4)), torch.randint(118, 124, (N, K4 // 32), dtype=torch.uint8)
        values = E2M1[codes] * torch.exp2(scales.float() - 127).repeat_interleave(32, 1)
        fill = {"weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), "weight_scale": scales}
        layer = self.layer_of_codes(settings, "compressed-tensors", torch.bfloat16, fill)
        self.check_values(layer, values, torch.bfloat16)

    def test_nvfp4_checkpoints(self):
        group = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
        settings = {
            "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": group,
                                          "input_activations": {**group, "dynamic": "local"}}},
            "ignore": ["lm_head"],
        }  # fmt: skip
        torch.manual_seed(4)
        codes, scales = torch.randint(0, 16, (N, K4)), (torch.rand(N, K4 // 16) * 400 + 1).to(torch.float8_e4m3fn)
        values = E2M1[codes] * scales.float().repeat_interleave(16, 1) / 4096
        fill = {
            "weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), "weight_scale": scales,
            "weight_global_scale": torch.tensor([4096.0]), "input_global_scale": torch.tensor([1.0]),
        }  # fmt: skip
        layer = self.layer_of_codes(settings, "compressed-tensors", torch.bfloat16, fill)
        self.check_values(layer, values, torch.bfloat16)

    def test_what_is_no_linear_layer_is_left_alone(self):
        config = get_quantization_config("gemmd_int8")()
        self.assertIsNone(config.get_quant_method(torch.nn.Embedding(2, 2), "embedding"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
