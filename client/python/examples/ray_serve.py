#!/usr/bin/env python3
"""Ray actors that share their node's gemmd.

    ray_serve.py --nodes 2 --actors 2            # a cluster on this machine, to try it
    ray_serve.py --address auto                  # a cluster that there is, with a gemmd on every node

Every actor looks for gemmd on its own node ($GEMMD_SOCKET, else /run/gemmd/gemmd.sock) and for the weight by its name:
the first one of a node loads it, the others find it. Requests go to any of them; one whose node has gone is asked of
another. Prints the copies of the weight that gemmd has on each node, and requests a second.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
import ray

N, K = 1024, 1024
NAME = "ray/example"


def values() -> np.ndarray:
    """The same on every node, as a checkpoint would be."""
    return np.random.default_rng(3).standard_normal((N, K)).astype(np.float32)


@ray.remote(num_cpus=0)
class Server:
    def __init__(self, socket: str | None):
        import gemmclient

        self.session = gemmclient.connect(socket)
        try:
            self.weight = self.session.open(NAME)
        except gemmclient.NotFoundError:
            try:
                self.session.load_array(values(), name=NAME, format="int8")
            except gemmclient.ExistsError:
                pass  # another actor of the node was first
            self.weight = self.session.open(NAME)

    def product(self, x: np.ndarray) -> np.ndarray:
        return np.array(self.weight.matmul(x))

    def copies(self) -> list:
        """This actor's node, its process, and the weights of that name that its gemmd has."""
        return [ray.get_runtime_context().get_node_id()[:8], os.getpid(), len(self.session.weights(NAME))]


def ask(actors: list, x: np.ndarray, turn: int) -> np.ndarray:
    """By the actor whose turn it is, or by the next one that is alive."""
    for other in range(len(actors)):
        try:
            return ray.get(actors[(turn + other) % len(actors)].product.remote(x))
        except ray.exceptions.RayActorError:
            continue
    raise SystemExit("no actor is left")


def right(y: np.ndarray, x: np.ndarray, w: np.ndarray) -> bool:
    """Within what INT8 makes of random numbers: 2 % of the result."""
    reference = x @ w.T
    return bool(np.linalg.norm(y - reference) < 0.02 * np.linalg.norm(reference))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of a cluster; without it one is made here")
    parser.add_argument("--nodes", type=int, default=2, help="of a cluster made here, which share this machine")
    parser.add_argument("--sockets", nargs="*", help="of gemmd, a node each; without them as every client finds it")
    parser.add_argument("--actors", type=int, default=2, help="a node")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--kill-node", action="store_true", help="the last node of a cluster made here, half way")
    chosen = parser.parse_args()
    cluster, nodes = None, []
    if chosen.address:
        ray.init(address=chosen.address, log_to_driver=False)
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    else:
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        added = [cluster.head_node] + [cluster.add_node(num_cpus=1) for _ in range(chosen.nodes - 1)]
        ray.init(address=cluster.address, log_to_driver=False)
        nodes = [node.node_id for node in added]
    place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    sockets = chosen.sockets or [None]
    actors = [
        Server.options(scheduling_strategy=place(node_id=node, soft=False)).remote(sockets[number % len(sockets)])
        for number, node in enumerate(nodes)
        for _ in range(chosen.actors)
    ]
    for node, process, copies in ray.get([actor.copies.remote() for actor in actors]):
        print(f"node {node}: actor {process} finds {copies} copy of {NAME}", flush=True)

    w, x = values(), np.random.default_rng(4).standard_normal((8, K)).astype(np.float32)
    begin, wrong = time.monotonic(), 0
    for turn in range(chosen.requests):
        if chosen.kill_node and cluster is not None and turn == chosen.requests // 2:
            cluster.remove_node(added[-1], allow_graceful=False)
            print(f"node {nodes[-1][:8]} is killed", flush=True)
        wrong += not right(ask(actors, x, turn), x, w)
    took = time.monotonic() - begin
    print(f"{chosen.requests} requests, {wrong} wrong, {chosen.requests / took:.0f} a second")
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
