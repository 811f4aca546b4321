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


class Plugin(unittest.TestCase):
    layers = []  # of experts, by name

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        os.environ["GEMMD_SOCKET"] = cls.daemon.socket
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

    def test_what_is_no_linear_layer_is_left_alone(self):
        config = get_quantization_config("gemmd_int8")()
        self.assertIsNone(config.get_quant_method(torch.nn.Embedding(2, 2), "embedding"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
