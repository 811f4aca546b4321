#!/usr/bin/python3
"""Writes the table of hostile cases: shapes that are extreme in one dimension or two, for everything that computes, in
every class, alone and several at a time. The same table every time."""
import random

CLASSES = ["background", "normal", "urgent"]
MOST_BYTES = 640 << 20  # of x, W and y
MOST_LOADED = 1 << 26  # elements of a stored weight


def bytes_of(kind, m, n, k, in_flight):
    return 2 * m * k + (2 * n * k if kind == "tensors" else 0) + 4 * m * n * in_flight


def sizes(rng, low, high):
    """A size between powers of two, more often a power of two or beside one."""
    size = 2 ** rng.uniform(low, high)
    if rng.random() < 0.5:
        size = 2 ** round(rng.uniform(low, high)) + rng.choice([-1, 0, 0, 1])
    return max(1, min(round(size), 1 << 24))


def shape(rng, kind):
    """One of: few rows and long K, few columns, all large, tall, wide."""
    ranges = rng.choice([((0, 4), (4, 11), (16, 24)), ((0, 4), (0, 4), (20, 24)), ((10, 13), (10, 13), (10, 14)),
                         ((12, 17), (2, 9), (8, 14)), ((0, 6), (16, 24), (2, 11))])
    m, n, k = (sizes(rng, *each) for each in ranges)
    if kind == "plan":
        n = k = max(16, min(n, k, 4096) // 16 * 16)
    return m, n, k


def main():
    rng = random.Random(20260101)
    seen = []
    # what made others wait for seconds
    seen += ["tensors f16 8192x8192x16384 background 1", "tensors bf16 1x512x1048576 background 1",
             "tensors f16 16x16x16777216 background 1", "tensors f16 1x1024x1048576 normal 1",
             "plan f16 8192x4096x4096 background 1 16", "plan int8 4096x4096x4096 background 1 4"]
    while len(seen) < 1000:
        kind = rng.choice(["tensors", "tensors", "tensors", "weight", "weight", "plan"])
        form = rng.choice(["f16", "bf16"] if kind == "tensors" else ["int8", "fp8", "int2", "f16", "bf16", "int2a8"])
        m, n, k = shape(rng, kind)
        if form == "int8":
            k = min(k, 131071)
        in_flight = rng.choice([1, 1, 1, 2, 8, 32])
        if bytes_of(kind, m, n, k, in_flight) > MOST_BYTES or (kind != "tensors" and n * k > MOST_LOADED):
            continue
        line = f"{kind} {form} {m}x{n}x{k} {rng.choice(CLASSES)} {in_flight}"
        if kind == "plan":
            line += f" {rng.choice([2, 3, 8, 16])}"
        if line not in seen:
            seen.append(line)
    print("// By make_cases.py: KIND FORMAT MxNxK CLASS IN_FLIGHT [STEPS], see tests/support/daemon/hostile.h.")
    print("\n".join(f'"{line}",' for line in seen))


main()
