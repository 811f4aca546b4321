#!/bin/bash
# protocol.json is enough to write a client: PROTOCOL.md's example is encoded by it alone, byte by byte, it names what
# the document's tables name, and what lies in shared memory does not overlap.
set -u
cd "$(dirname "$0")/.." || exit 2
exec /usr/bin/python3 -B - "${GEMMD_BUILD:-build}/protocol.json" proto/PROTOCOL.md <<'PYTHON'
import json
import re
import sys

protocol = json.load(open(sys.argv[1]))
document = open(sys.argv[2]).read()
bodies = protocol["bodies"]


def check(condition, what):
    if not condition:
        sys.exit(f"protocol.json: {what}")


def encode(body, values):
    out = bytes([0x80 | len(values)])
    for field in bodies[body]:
        value = values.get(field["name"])
        if value is not None:
            name = field["name"].encode()
            check(field["type"] in ("u32", "u64") and value < 128 and len(name) < 32, "the example has grown")
            out += bytes([0xA0 | len(name)]) + name + bytes([value])
    return out


ping = next(command for command in protocol["commands"] if command["name"] == "ping")
example = re.search(r"byte by byte:\n\n +([0-9a-f ]+)\n", document).group(1)
request = bytes([0x94, 0, 7, ping["number"]]) + encode(ping["request"], {"payload": 42})
check(request == bytes.fromhex(example), f"ping is {request.hex(' ')}")

for command in protocol["commands"]:
    check(command["request"] in bodies and command["reply"] in bodies, f"{command['name']} has no body")
    check(f"| {command['number']} | `{command['name']}` |" in document, f"{command['name']} is not in PROTOCOL.md")
for body, fields in bodies.items():
    check(f"#### `{body}`" in document, f"{body} is not in PROTOCOL.md")
    for field in fields:
        check("of" not in field or field["of"] in bodies, f"{body}.{field['name']} is a list of nothing")
for number, name in re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", document, re.M):
    known = [row["name"] for row in protocol["statuses"] + protocol["fields"] if row["number"] == int(number)]
    check(name in known, f"{name} is not {number}")
numbers = document.split("## Types, formats, scale modes")[1].split("## The arena")[0]
for number, name in re.findall(r"^\| (\d+) \| ([a-z0-9]+) [(|]", numbers, re.M):
    known = {**protocol["types"]}, {**protocol["formats"]}, {**protocol["scale_modes"]}, {"none": 0}
    check(any(table.get(name) == int(number) for table in known), f"{name} is not {number}")
for name, part in protocol["arena"].items():
    words = sorted(place for key, place in part.items() if key != "bytes")
    for (offset, size), (after, _) in zip(words, words[1:] + [[part["bytes"], 0]]):
        check(offset % size == 0 and offset + size <= after, f"{name}: {offset} overlaps {after}")
check(len(protocol["commands"]) > 40 and len(bodies) > 60, "it is cut short")
PYTHON
