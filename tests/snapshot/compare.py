#!/usr/bin/env python3
"""Compares what tests/snapshot has written: compare.py A B, two folders or two files.

Prints for each file how many lines are equal, and those that differ or that one side alone has. Exit 1 where there are
any."""
import os
import sys

SHOWN = 40  # of the differences of a file


def read(path):
    """Lines by what stands before the last colon, the same question asked again with a number behind it."""
    lines = {}
    with open(path) as file:
        for line in file:
            question, _, answer = line.rstrip("\n").partition(": ")
            times = 0
            while (question, times) in lines:
                times += 1
            lines[question, times] = answer
    return lines


def compare(name, left, right):
    a, b = read(left), read(right)
    differ = [(key, a.get(key, "(missing)"), b.get(key, "(missing)")) for key in {**a, **b} if a.get(key) != b.get(key)]
    print(f"{name}: {len({**a, **b}) - len(differ)} equal, {len(differ)} differ")
    for (question, _), was, now in differ[:SHOWN]:
        print(f"  {question}\n    A {was}\n    B {now}")
    if len(differ) > SHOWN:
        print(f"  and {len(differ) - SHOWN} more")
    return len(differ)


def main(left, right):
    if not os.path.isdir(left):
        return compare(os.path.basename(left), left, right)
    names = sorted(set(os.listdir(left)) | set(os.listdir(right)))
    alone = [name for name in names if not all(os.path.exists(os.path.join(side, name)) for side in (left, right))]
    for name in alone:
        print(f"{name}: on one side alone")
    both = [name for name in names if name not in alone]
    return len(alone) + sum(compare(name, os.path.join(left, name), os.path.join(right, name)) for name in both)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("compare.py A B")
    sys.exit(1 if main(*sys.argv[1:]) else 0)
