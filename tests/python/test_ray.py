#!/usr/bin/python3
"""client/python/examples/ray_serve.py with Ray itself: two nodes with a gemmd each, two actors a node, one node killed."""

import os
import re
import subprocess
import sys
import unittest

from support import PATIENCE_S, ROOT, Daemon

try:
    import ray  # noqa: F401
except ImportError as error:
    raise SystemExit(f"test_ray.py needs ray ({error}); make test-ray brings it") from None


class Ray(unittest.TestCase):
    def test_actors_share_a_copy_and_outlive_a_node(self):
        with Daemon() as first, Daemon() as second:
            command = [sys.executable, str(ROOT / "client/python/examples/ray_serve.py"), "--requests", "60",
                       "--sockets", first.socket, second.socket, "--kill-node"]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "client/python"), "RAY_USAGE_STATS_ENABLED": "0"}
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=4 * PATIENCE_S)
            self.assertEqual(run.returncode, 0, run.stdout)
            found = re.findall(r"^node (\w+): actor (\d+) finds (\d+) copy", run.stdout, flags=re.M)
            self.assertEqual(len({node for node, _, _ in found}), 2, run.stdout)
            self.assertEqual(len({actor for _, actor, _ in found}), 4, run.stdout)
            self.assertEqual({copies for _, _, copies in found}, {"1"})
            self.assertIn(" is killed", run.stdout)
            self.assertRegex(run.stdout, "60 requests, 0 wrong")
            for daemon in (first, second):
                self.assertEqual(daemon.log().count('loaded "ray/example"'), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
