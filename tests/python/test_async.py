#!/usr/bin/python3
"""The Python client in event loops: asyncio's, and one that polls descriptors itself."""

import asyncio
import os
import select
import signal
import threading
import unittest

from support import PATIENCE_S, Daemon, int8_product, kill_orphan, random, stop, worst_row

import gemmclient

N, K = 64, 48


class Loops(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)
        self.session = gemmclient.connect(self.daemon.socket, reconnect=0.1)
        self.addCleanup(self.session.close)
        self.w = random(1, N, K)
        self.session.load_array(self.w, name="w", format="int8")
        self.weight = self.session.open("w")
        self.x = self.session.array(random(2, 4, K))
        self.reference = int8_product(self.x, self.w)
        self.worker = self.session.status().devices[0].pid

    def check(self, y):
        self.assertLess(worst_row(y, self.reference), 1e-6)

    def test_many_tasks(self):
        async def client(rounds):
            for _ in range(rounds):
                self.check(await self.weight.submit(self.x))
            return rounds

        async def main():
            return await asyncio.gather(*(client(20) for _ in range(16)))

        self.assertEqual(sum(asyncio.run(main())), 320)
        self.assertEqual(sum(asyncio.run(main())), 320)  # another loop, the same session

    def test_the_loop_goes_on_meanwhile(self):
        async def main():
            stop(self.worker)
            product = asyncio.ensure_future(self.wait(self.weight.submit(self.x)))
            for _ in range(10):
                await asyncio.sleep(0)
            self.assertFalse(product.done())
            os.kill(self.worker, signal.SIGCONT)
            self.check(await asyncio.wait_for(product, PATIENCE_S))

        asyncio.run(main())

    async def wait(self, pending):
        return await pending

    def test_a_task_that_is_cancelled_leaves_the_others_alone(self):
        async def main():
            stop(self.worker)
            pending = self.weight.submit(self.x)
            tasks = [asyncio.ensure_future(self.wait(one)) for one in (pending, pending, self.weight.submit(self.x))]
            await asyncio.sleep(0)
            tasks[0].cancel()
            os.kill(self.worker, signal.SIGCONT)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertIsInstance(results[0], asyncio.CancelledError)
            self.check(results[1])
            self.check(results[2])

        asyncio.run(main())

    def test_waiting_and_awaiting_together(self):
        async def main():
            stop(self.worker)
            awaited, waited = self.weight.submit(self.x), self.weight.submit(self.x)
            task = asyncio.ensure_future(self.wait(awaited))
            await asyncio.sleep(0)
            thread = threading.Thread(target=waited.wait)  # takes in both
            thread.start()
            os.kill(self.worker, signal.SIGCONT)
            self.check(await asyncio.wait_for(task, PATIENCE_S))
            thread.join(PATIENCE_S)
            self.assertTrue(waited.done)
            self.check(await waited)

        asyncio.run(main())

    def test_the_daemon_ends_meanwhile(self):
        async def main():
            stop(self.worker)
            tasks = [asyncio.ensure_future(self.wait(self.weight.submit(self.x))) for _ in range(3)]
            await asyncio.sleep(0)
            self.daemon.kill()
            kill_orphan(self.worker)
            results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_S)
            for result in results:
                self.assertIsInstance(result, gemmclient.DisconnectedError)

        asyncio.run(main())
        self.daemon.start()

    def test_the_session_is_closed_meanwhile(self):
        async def main():
            stop(self.worker)
            task = asyncio.ensure_future(self.wait(self.weight.submit(self.x)))
            await asyncio.sleep(0)
            self.session.close()
            os.kill(self.worker, signal.SIGCONT)
            with self.assertRaises(gemmclient.DisconnectedError):
                await asyncio.wait_for(task, PATIENCE_S)

        asyncio.run(main())

    def test_two_loops_at_a_time(self):
        async def other():
            with self.assertRaises(gemmclient.WrongStateError):
                await self.weight.submit(self.x)

        async def main():
            self.check(await self.weight.submit(self.x))
            stop(self.worker)
            task = asyncio.ensure_future(self.wait(self.weight.submit(self.x)))
            await asyncio.sleep(0)
            thread = threading.Thread(target=lambda: asyncio.run(other()))
            thread.start()
            thread.join(PATIENCE_S)
            self.assertFalse(thread.is_alive())
            os.kill(self.worker, signal.SIGCONT)
            self.check(await task)

        asyncio.run(main())

    def test_a_loop_of_ones_own(self):
        poll = select.poll()
        poll.register(self.session.fileno(), select.POLLIN)
        pending = [self.weight.submit(self.x) for _ in range(8)]
        while not all(one.done for one in pending):
            self.assertTrue(poll.poll(PATIENCE_S * 1000))
            self.session.dispatch()
        for one in pending:
            self.check(one.wait())


if __name__ == "__main__":
    unittest.main(verbosity=2)
