#!/usr/bin/python3
"""Tuning by the Python client against a real gemmd: lists, searches and their tables, pins, microbench."""

import unittest

from support import Daemon, random

import gemmclient
from gemmclient import errors


class Tuning(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon("tune = off\ncpu_threads = 2\ntune_bytes = 1048576")
        cls.addClassCleanup(cls.daemon.close)
        with gemmclient.connect(cls.daemon.socket) as session:
            session.load_array(random(1, 96, 256), name="mlp.up", format="int8")

    def setUp(self):
        self.session = gemmclient.connect(self.daemon.socket)
        self.addCleanup(self.session.close)

    def kernels(self):
        return {one.shape: (one.state, one.kernel) for one in self.session.tune_list()}

    def test_a_search_and_its_table(self):
        report = self.session.tune("mlp.up", 8, kernel="cpu threads=1 block_m=8", warmup=1, iterations=4)
        self.assertEqual(report.shape, "int8-row-96x256-f16-f16-none-m8")
        self.assertGreaterEqual(len(report.trials), report.timed)
        times = [one.ns for one in report.trials if one.state == "timed"]
        self.assertEqual(times, sorted(times))
        self.assertEqual([one.ns for one in report.best], times[:3])
        for one in report.trials:
            self.assertGreaterEqual(one.samples, 4)
            self.assertLess(one.error, 1e-3)
        for mark in ("own", "incumbent", "winner", "hand"):
            self.assertEqual(sum(getattr(one, mark) for one in report.trials), 1, mark)
        hand = next(one for one in report.trials if one.hand)
        self.assertTrue(hand.kernel.startswith("cpu threads=1 block_m=8 "))
        self.assertEqual(report.manual_ns, hand.ns)
        self.assertEqual(self.session.tune_trials(report.device, report.search), report.trials)
        self.assertEqual(self.kernels()[report.shape][0], "tuned")
        self.session.tune("mlp.up", 4, exhaustive=True)
        self.assertGreater(len(self.session.tune_trials()), 32)  # of more than a page
        with self.assertRaises(errors.NotFoundError):
            self.session.tune_trials(report.device, report.search)

    def test_refused(self):
        with self.assertRaisesRegex(errors.InvalidError, "warmup must be 0..100, got 101"):
            self.session.tune("mlp.up", 8, warmup=101)
        with self.assertRaisesRegex(errors.NotFoundError, "nobody"):
            self.session.tune("nobody", 8)
        with self.assertRaisesRegex(errors.UnsupportedError, "no kernels of family evil"):
            self.session.pin("mlp.*", "evil")
        with self.assertRaisesRegex(errors.UnsupportedError, "no kernels of family evil"):
            self.session.pin("nothing.*", "evil")

    def test_pin(self):
        self.assertEqual(self.session.pin("mlp.*", "cpu threads=1"), 1)
        with self.session.open("mlp.up") as weight:
            weight.matmul(self.session.array(random(2, 4, 256)))
        pinned = [kernel for state, kernel in self.kernels().values() if state == "pinned"]
        self.assertEqual(len(pinned), 1)
        self.assertTrue(pinned[0].startswith("cpu threads=1 "))
        self.assertEqual(self.session.pin("mlp.*", None), 1)

    def test_microbench(self):
        report = self.session.microbench(64, 128, 192, iterations=9)
        self.assertEqual(report.shape, "int8-row-128x192-f16-f16-none-m64")
        self.assertGreater(report.manual_ns, 0)
        self.assertTrue(1 <= len(report.best) <= 3)
        self.assertTrue(all(one.samples >= 9 for one in report.best))
        self.assertEqual([one.name for one in self.session.weights("microbench.*")], [])
        self.assertIsNotNone(self.session.microbench(64, 128, 192, "bf16", pin="mlp.*"))
        self.assertEqual(self.session.pin("mlp.*", None), 1)

    def test_microbench_that_fails(self):
        large = dict(m=4096, n=64, k=256, kernel="cpu threads=1")  # x takes 2 MiB, tune_bytes allows one
        with self.assertRaisesRegex(errors.TooLargeError, "tune_bytes allows 1"):
            self.session.microbench(**large)
        with self.assertRaises(errors.TooLargeError):
            self.session.microbench(**large, pin="mlp.*")
        self.assertIsNone(self.session.microbench(**large, pin="mlp.*", on_failure="manual"))
        self.assertEqual(self.session.pin("mlp.*", None), 1)
        self.assertEqual(self.session.weights("microbench.*"), [])
        for wrong in (dict(m=65), dict(k=(1 << 24) + 64), dict(on_failure="pray"), dict(on_failure="manual")):
            with self.assertRaises(errors.InvalidError):
                self.session.microbench(**{**dict(m=64, n=64, k=64), **wrong})


if __name__ == "__main__":
    unittest.main()
