#!/usr/bin/python3
"""gemmclient.torch.replace_experts in transformers' models of random weights, against torch's own experts."""

import copy
import unittest

import torch
from support import Daemon

try:
    from transformers import GptOssConfig, GptOssForCausalLM, MixtralConfig, MixtralForCausalLM
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
except ImportError:
    raise unittest.SkipTest("transformers 5 is not installed") from None

import gemmclient
import gemmclient.torch
from gemmclient._torch import direct as _torch_direct

SMALL = dict(
    vocab_size=199, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128,
)  # fmt: skip
PROMPT, LENGTH = 7, 24


def qwen(**options):
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **SMALL, moe_intermediate_size=48, num_experts=8, num_experts_per_tok=3, head_dim=16,
            norm_topk_prob=True, **options,
        )  # fmt: skip
    ).eval()


def mixtral(**options):
    return MixtralForCausalLM(MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2, **options)).eval()


def gpt_oss(**options):
    """With biases and gates that reach the limits of its SwiGLU."""
    model = GptOssForCausalLM(
        GptOssConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2, head_dim=16, **options)
    ).eval()
    for layer in model.model.layers:
        with torch.no_grad():
            layer.mlp.experts.gate_up_proj_bias.normal_(0, 6)
            layer.mlp.experts.down_proj_bias.normal_()
    return model


class Replaced(unittest.TestCase):
    direct = True

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        torch.manual_seed(1)
        cls.session = gemmclient.connect(cls.daemon.socket)
        cls.addClassCleanup(cls.session.close)
        if not cls.direct:  # as where nothing can be borrowed, without the warning
            _torch_direct._here.setdefault(cls.session, {})[torch.device("cpu")] = None

    def compare(self, model, format, most):
        """Logits of a text that torch's model has written, greedily: near, and the same tokens wherever the two best of
        torch's are farther apart than logits are off."""
        with torch.inference_mode():
            text = torch.randint(0, SMALL["vocab_size"], (2, PROMPT))
            text = model.generate(text, max_length=LENGTH, do_sample=False, pad_token_id=0)
            right = model(text).logits.double()
            ours = copy.deepcopy(model)
            paths = gemmclient.torch.replace_experts(ours, format, session=self.session, release=True)
            self.assertEqual(paths, [f"model.layers.{i}.mlp.experts" for i in range(SMALL["num_hidden_layers"])])
            got = ours(text).logits.double()
        off = (got - right).norm() / right.norm()
        self.assertLess(off, most)
        best = right.topk(2).values
        sure = best[..., 0] - best[..., 1] > 2 * (got - right).abs().amax(-1)
        self.assertGreater(sure.double().mean(), 0.5)
        self.assertTrue(torch.equal(got.argmax(-1)[sure], right.argmax(-1)[sure]))

    def test_qwen3_moe(self):
        self.compare(qwen().bfloat16(), "bf16", 2e-2)
        self.compare(qwen(), "int8", 5e-2)
        self.compare(qwen().half(), "fp8", 1e-1)

    def test_mixtral(self):
        self.compare(mixtral().bfloat16(), "bf16", 2e-2)
        self.compare(mixtral(hidden_act="gelu"), "int8", 5e-2)

    def test_gpt_oss(self):
        """Of a model in which no token's second and third expert are nearly as good as each other: where another one is
        taken, biases such as these make logits others."""
        torch.manual_seed(1)
        self.compare(gpt_oss().bfloat16(), "bf16", 2e-2)
        self.compare(gpt_oss(), "int8", 5e-2)

    def test_the_same_tokens(self):
        """Written by the two, each with its own."""
        model = qwen().half()
        ours = copy.deepcopy(model)
        gemmclient.torch.replace_experts(ours, "f16", session=self.session, release=True)
        with torch.inference_mode():
            prompt = torch.randint(0, SMALL["vocab_size"], (1, PROMPT))
            texts = [one.generate(prompt, max_length=LENGTH, do_sample=False, pad_token_id=0) for one in (model, ours)]
        self.assertTrue(torch.equal(*texts))

    def test_more_rows_than_go_at_once(self):
        model = qwen().bfloat16()
        experts = model.model.layers[0].mlp.experts
        x = torch.randn(5000, SMALL["hidden_size"]).bfloat16()
        ids, weights = torch.randint(0, 8, (5000, 8)), torch.rand(5000, 8).bfloat16()
        with torch.inference_mode():
            right = experts(x, ids, weights)
            gemmclient.torch.replace_experts(model, "bf16", "*layers.0*", session=self.session, release=True)
            y = model.model.layers[0].mlp.experts(x, ids, weights)
        self.assertLess((y.double() - right.double()).norm() / right.double().norm(), 1e-2)

    def test_names_go_with_the_model(self):
        before = {one.name for one in self.session.weights()}
        model = qwen()
        gemmclient.torch.replace_experts(model, "int8", session=self.session, prefix="going", release=True)
        self.assertEqual(len({one.name for one in self.session.weights("going*")}), 4)
        self.assertTrue(all(one.experts == 8 for one in self.session.weights("going*")))
        del model
        import gc

        gc.collect()
        self.assertEqual({one.name for one in self.session.weights()}, before)

    def test_refused(self):
        with self.assertRaisesRegex(gemmclient.InvalidError, "matches no experts"):
            gemmclient.torch.replace_experts(qwen(), "int8", "nothing*", session=self.session)
        with self.assertRaisesRegex(gemmclient.InvalidError, "mlp.experts: its activation is"):
            gemmclient.torch.replace_experts(qwen(hidden_act="gelu_new"), "int8", session=self.session)
        other = gpt_oss(swiglu_limit=5.0)
        with self.assertRaisesRegex(gemmclient.InvalidError, "mlp.experts: its SwiGLU has .* limit 5"):
            gemmclient.torch.replace_experts(other, "int8", session=self.session)
        self.assertFalse(any("experts" in one.name for one in self.session.weights()))
        model = qwen()
        gemmclient.torch.replace_experts(model, "int8", session=self.session, release=True)
        with self.assertRaisesRegex(gemmclient.WrongStateError, "with gemmd"):
            model.state_dict()
        with self.assertRaisesRegex(RuntimeError, "no gradients"):
            model(torch.zeros(1, 3, dtype=torch.long), labels=torch.zeros(1, 3, dtype=torch.long)).loss.backward()

    def test_compiled(self):
        model = qwen().bfloat16()
        experts = gemmclient.torch.GemmdExperts.from_weights(
            model.model.layers[0].mlp.experts.gate_up_proj, model.model.layers[0].mlp.experts.down_proj, "silu",
            self.session, "compiled", "bf16", release=True,
        )  # fmt: skip
        x, ids = torch.randn(9, SMALL["hidden_size"]).bfloat16(), torch.randint(0, 8, (9, 3))
        weights = torch.rand(9, 3).bfloat16()
        with torch.inference_mode():
            compiled = torch.compile(lambda *all: experts(*all) * 2, backend="eager", fullgraph=True)
            self.assertTrue(torch.equal(compiled(x, ids, weights), experts(x, ids, weights) * 2))


class ByWorker(Replaced):
    """The same where gemmd's worker computes."""

    direct = False

    def test_nothing_is_borrowed(self):
        model = mixtral()
        gemmclient.torch.replace_experts(model, "int8", session=self.session, prefix="worker", release=True)
        with torch.inference_mode():
            model(torch.zeros(1, 3, dtype=torch.long))
        self.assertEqual([one.borrows for one in self.session.weights("worker*")], [0] * 4)


if __name__ == "__main__":
    unittest.main()
