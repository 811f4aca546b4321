"""Kills while an engine serves: the worker 20 times, gemmd 5 times. No request may fail, no answer be wrong."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
import time
import unittest
from typing import Callable, List

from support import Daemon

import gemmclient

WORKER_KILLS, DAEMON_KILLS = 20, 5
ANSWERS = 8  # between two kills, at least


def kill_worker(daemon: Daemon) -> None:
    """The one that serves; where the last one's end has not been noticed yet, the next."""
    with gemmclient.connect(daemon.socket) as session:
        while True:
            worker = session.status().devices[0].pid
            with contextlib.suppress(ProcessLookupError):
                if worker > 0:
                    return os.kill(worker, signal.SIGKILL)
            time.sleep(0.01)


def serve_through_kills(
    test: unittest.TestCase,
    daemon: Daemon,
    ask: Callable[[int], bool],
    clients: int,
    load: Callable[[], object] = lambda: None,
) -> int:
    """`ask(client)`: one request of that client, whether its answer is right. `load`: what gemmd needs when it has been
    started anew. How many answers there were."""
    ended, answers, failures = threading.Event(), [], []  # type: threading.Event, List[bool], List[Exception]

    def keep_asking(client: int) -> None:
        while not ended.is_set():
            try:
                answers.append(ask(client))
            except Exception as error:
                failures.append(error)

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(keep_asking, client) for client in range(clients)]
        try:
            for kill in range(WORKER_KILLS):
                kill_worker(daemon)
                if kill % (WORKER_KILLS // DAEMON_KILLS) == 0:
                    daemon.kill()
                    daemon.start()
                    load()
                seen = len(answers)
                while len(answers) < seen + ANSWERS and not failures:
                    ended.wait(0.02)
        finally:
            ended.set()
        for one in asking:
            one.result()
    test.assertEqual(failures, [])
    test.assertGreaterEqual(len(answers), ANSWERS * WORKER_KILLS)
    test.assertTrue(all(answers), f"{answers.count(False)} of {len(answers)} answers are wrong")
    return len(answers)
