#!/usr/bin/python3
"""The vLLM plugin in the vLLM package, without a server: found, registered, and its layers computed, by a real gemmd.
Python is one that has vllm and gemmclient installed."""

import os
import unittest

from support import Daemon, int8_product, worst_row

try:
    import torch
    import vllm.plugins
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.layers.linear import ColumnParallelLinear, QKVParallelLinear, ReplicatedLinear
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config
except ImportError as error:
    raise SystemExit(f"test_vllm.py needs vllm: {error}") from None

import gemmclient

K, N = 64, 96


class Plugin(unittest.TestCase):
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
