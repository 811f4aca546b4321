#!/usr/bin/python3
"""gemmclient.Direct against a real gemmd: products in this process, and what gemmd's end and a name's change do to them."""

import gc
import unittest

import numpy as np
from support import Daemon, int8_product, random, worst_row

import gemmclient

M, N, K = 5, 96, 80


def aligned(shape, dtype) -> np.ndarray:
    """numpy aligns to 16 bytes by itself on the machines that gemmd runs on, or to less."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(size + 64, np.uint8)
    skip = -room.ctypes.data % 64
    return room[skip : skip + size].view(dtype).reshape(shape)


def product(weight: gemmclient.DirectWeight, x: np.ndarray, bias=None, lane: int = 0) -> np.ndarray:
    rows, y = aligned(x.shape, np.float32), aligned((x.shape[0], weight.n), np.float32)
    rows[:], y[:] = x, np.nan
    given = aligned(bias.shape, np.float32) if bias is not None else None
    if given is not None:
        given[:] = bias
    weight.launch(
        x.shape[0], rows.ctypes.data, "f32", y.ctypes.data, "f32", lane=lane,
        bias=given.ctypes.data if given is not None else 0, bias_type="f32",
    )  # fmt: skip
    return y


class Direct(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.session = gemmclient.connect(self.daemon.socket, name="direct", reconnect=1)
        self.addCleanup(self.session.close)
        self.w = random(1, N, K)
        self.session.load_array(self.w, name="w", format="int8")
        self.direct = gemmclient.Direct(self.session, lanes=2, rows_most=64)
        self.x = random(2, M, K)

    def test_a_product_is_what_gemmd_computes(self):
        weight = self.direct.borrow("w")
        bias = random(3, 1, N)[0]
        y = product(weight, self.x, bias)
        self.assertLess(worst_row(y, int8_product(self.x, self.w) + bias), 1e-6)
        with self.session.open("w") as served:
            np.testing.assert_array_equal(served.matmul(self.x), product(weight, self.x, lane=1))

    def test_it_goes_on_when_the_name_stands_for_something_else(self):
        weight = self.direct.borrow("w")
        before = product(weight, self.x)
        self.session.load_array(random(4, N, K), name="w", format="int8", replace=True)
        np.testing.assert_array_equal(product(weight, self.x), before)
        self.assertGreater(worst_row(product(self.direct.borrow("w"), self.x), before), 0.1)

    def test_it_goes_on_when_gemmd_is_gone(self):
        weight = self.direct.borrow("w")
        before = product(weight, self.x)
        self.daemon.kill()
        for _ in range(100):
            np.testing.assert_array_equal(product(weight, self.x), before)

    def test_it_computes_the_same_when_it_is_tuned(self):
        weight = self.direct.borrow("w")
        before = product(weight, self.x)
        self.assertIn(weight.tune([1, M], "f32", "f32", budget_ms=300, lane=1), (0, 1, 2))
        self.assertLess(worst_row(product(weight, self.x), before), 1e-6)
        with self.assertRaisesRegex(gemmclient.InvalidError, "1..64, got 65"):
            weight.tune([1, 65], "f32", "f32")
        with self.assertRaisesRegex(gemmclient.UnsupportedError, "y type"):
            weight.tune([1], "f32", "s32")
        self.direct.quiet(1000)
        np.testing.assert_array_equal(product(weight, self.x), product(weight, self.x, lane=1))

    def test_what_is_wrong_is_said(self):
        weight = self.direct.borrow("w")
        with self.assertRaisesRegex(gemmclient.NotFoundError, "none"):
            self.direct.borrow("none")
        with self.assertRaisesRegex(gemmclient.InvalidError, "1..64"):
            product(weight, random(2, 65, K))
        with self.assertRaisesRegex(gemmclient.InvalidError, "lane"):
            product(weight, self.x, lane=2)

    def test_what_nobody_refers_to_is_given_back(self):
        weight = self.direct.borrow("w")
        product(weight, self.x)
        self.session.unload("w")
        del weight
        self.direct = None
        gc.collect()
        self.session.status()
        self.assertEqual(self.session._core.blocks, 0)
        self.assertEqual(self.session._core.recorded, [])


if __name__ == "__main__":
    unittest.main()
