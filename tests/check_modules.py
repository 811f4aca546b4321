#!/usr/bin/env python3
"""Circles between modules: a module is a .c or .cu file and the headers of its name; it depends on another where it
includes a header of that (`includes`), or uses a function or a variable that it defines (`calls`).

check_modules.py [--edges] [--write] [TREE]

Circles of includes and circles of calls are looked for apart: a header that many include for its types would join both.
Those that there are stand in check_modules.known, which may only become shorter: exit 1 where a module is in a circle
with others than that file says, or where more functions are declared in a header that is not that of their own file.
--edges names what closes each circle. --write takes what is gone out of the file.

Reads the sources, which need not be built: what clang-format leaves (definitions begin in the first column) and names
that are joined by ## are enough to go by."""

import argparse
import collections
import os
import re
import sys

FOLDERS = ("proto", "daemon", "client", "kernels")
KNOWN = "tests/check_modules.known"
PUBLIC = re.compile(r"client/(gemmclient\w*|\w+/gemmd_\w+)\.h$")  # declare what users call, wherever it is defined

# Folders that only these see. Everything else is seen by what stands in the same folder of the first level or uses that.
HIDDEN = {
    "client/ctl": (),
    "client/cuda": (),
    "client/direct": (),
    "client/ggml": (),
    "client/tool": ("client/ctl",),
    "client/triton": (),
    "daemon/loader": ("daemon/main.c",),
    "daemon/supervisor": ("daemon/main.c",),
    "daemon/worker": ("daemon/main.c",),
    "kernels/cpu": ("kernels/backend.c",),
    "kernels/cuda": ("kernels/backend.c",),
    "proto/weights": ("client", "daemon/loader"),
}
USES = {"proto": (), "kernels": ("proto",), "client": ("proto",), "daemon": ("proto", "kernels")}

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
MACRO = re.compile(r"\s*#\s*define\s+(\w+)(?:\([^)]*\))?(.*)", re.S)
TAG = re.compile(r"\b(struct|enum|union)\s+[A-Za-z_]\w*(##\w+)*")
NAME = re.compile(r"(?<![\w.#])(?<!->)[A-Za-z_]\w*(?:##\w+)*")
LOCAL = re.compile(r"\b(?!return\b|else\b|case\b|sizeof\b)[A-Za-z_]\w*[ *]+([A-Za-z_]\w*)\s*[=;,)\[]")
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)")
FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\((?:[^(){};]|\((?:[^()]|\([^()]*\))*\))*\)\s*$")
VARIABLE = re.compile(r"^(?:[A-Za-z_][\w]*[\s*]+)+([A-Za-z_][\w#]*)\s*(?:\[[^\]]*\]\s*)*$")
JOINED_DEFINITION = re.compile(r"(?<!extern )const struct \w+ \w*##[\w#]+ = ")
TYPE_BODY = re.compile(r"(typedef |static |const )*(struct|enum|union)\b[^()]*$")


class Source:
    """One file: what it includes, defines for others, keeps to itself, declares and uses."""

    def __init__(self, path):
        with open(path) as file:
            text = file.read()
        self.path = path
        self.includes = [os.path.normpath(os.path.join(os.path.dirname(path), to)) for to in INCLUDE.findall(text)]
        plain = COMMENT_OR_STRING.sub(lambda match: '""' if match.group()[0] in "\"'" else " ", text)
        plain = re.sub(r"\s*##\s*", "##", plain)
        self.macros, self.own, self.defined, self.declared, self.names = {}, set(), set(), set(), set()
        for directive in DIRECTIVE.findall(plain):
            self.take_macro(directive)
        for head, body in outer_statements(DIRECTIVE.sub("", plain)):
            self.take(head, body)

    def take_macro(self, directive):
        match = MACRO.match(directive)
        if match is None:
            return
        body = match.group(2).replace("\\\n", " ")
        self.macros[match.group(1)] = names_of(body)
        if self.path.endswith((".c", ".cu")):
            self.names |= names_of(body)  # what uses it may be a .def
        definition = JOINED_DEFINITION.search(body)
        if definition:
            self.take(definition.group(), "{}")

    def take(self, head, body):
        """A declaration, or what stands before a body or an initializer."""
        words = head.split()
        if not words or words[0] in ("typedef", "using", "namespace", "static_assert", "_Static_assert"):
            return
        header = self.path.endswith((".h", ".cuh"))
        if body is not None or not header:
            self.names |= names_of(body or "") | (names_of(head.partition("=")[2]))
            self.own |= set(LOCAL.findall(TAG.sub("int", body or "")))
        if words[0] == "template" or "inline" in words[:4]:
            return
        before, equals, _ = head.partition("=")
        plain = ATTRIBUTE.sub(" ", before.replace('extern ""', "")).strip()
        function = not equals and FUNCTION.search(plain)
        by_macro = None if body or header else re.match(r"[A-Z_0-9]+\(([a-z]\w*)", plain)
        if by_macro:
            self.defined.add(by_macro.group(1))
        elif function:
            kept = self.own if "static" in words[:3] else self.declared if body is None else self.defined
            kept.add(function.group(1))
        elif words[0] != "extern" and (equals or words[0] not in ("struct", "enum", "union")):
            variable = VARIABLE.match(plain)
            if variable and not header:
                (self.own if "static" in words[:3] else self.defined).add(variable.group(1))


def names_of(text):
    return set(NAME.findall(TAG.sub(" ", text)))


def outer_statements(text):
    """What stands outside of all braces: pairs of a declaration and its body, None where it has none."""
    found, head, body, depth = [], "", "", 0
    for part in re.split(r"([{};])", text):
        if depth == 0 and part == "{" and head.strip() == 'extern ""':
            head = ""  # what is inside counts as outside; its end is passed over
        elif part == "{":
            depth += 1
            body += part
        elif part == "}" and depth > 0:
            depth -= 1
            body += part
            if depth == 0 and "=" not in head and not TYPE_BODY.match(head.strip()):
                found.append((head.strip(), body))
                head = body = ""
        elif part == ";" and depth == 0:
            is_type = TYPE_BODY.match(head.strip()) and "=" not in head
            found.append((head.strip(), None if is_type or not body else body))
            head = body = ""
        elif depth == 0:
            head += part if part != "}" else ""
        else:
            body += part
    return found


def module_of(path):
    return os.path.splitext(path)[0]


def read_sources():
    paths = []
    for folder in FOLDERS:
        for place, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in ("build", "python")]  # copies of headers
            paths += [os.path.join(place, file) for file in files if file.endswith((".c", ".h", ".cu", ".cuh"))]
    return {path: Source(path) for path in sorted(paths)}


def sees(user, place):
    """Whether a file may use what another one defines: programs have functions of the same names."""
    if user.split("/")[0] != place.split("/")[0] and place.split("/")[0] not in USES[user.split("/")[0]]:
        return False
    hidden = [(folder + "/", *users) for folder, users in HIDDEN.items() if place.startswith(folder + "/")]
    return all(user.startswith(users) for users in hidden)


def includes(sources):
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for path, source in sources.items():
        for to in source.includes:
            if to in sources and module_of(to) != module_of(path):
                edges[module_of(path)][module_of(to)].add(os.path.basename(to))
    return edges


def definitions(sources):
    """Names, and patterns of joined ones, with the files that define them."""
    defined = collections.defaultdict(set)
    for path, source in sources.items():
        if path.endswith((".c", ".cu")):
            for name in source.defined - {"main"}:
                defined[name].add(path)
    return defined


def joined(name):
    """What a name that macros join may become: parts that have no _ at an end are their parameters."""
    parts = [part if part[0] == "_" or part[-1] == "_" else r"\w+" for part in name.split("##")]
    return re.compile("".join(parts) + "$")


def seen_headers(sources, path):
    """A file, and the headers that it includes, and what those include."""
    seen, todo = {path}, [path]
    while todo:
        for to in sources[todo.pop()].includes:
            if to in sources and to not in seen:
                seen.add(to)
                todo.append(to)
    return seen


def macros_of(sources, path):
    """What is in the macros that a file can use, by name."""
    macros = collections.defaultdict(set)
    for header in seen_headers(sources, path):
        for name, body in sources[header].macros.items():
            macros[name] |= body
    return macros


def expand(names, macros):
    """With what the macros among the names make of them."""
    every, todo = set(names), list(names)
    while todo:
        for name in macros.get(todo.pop(), ()):
            if name not in every:
                every.add(name)
                todo.append(name)
    return every


def calls(sources, defined):
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    patterns = [(joined(name), places) for name, places in defined.items() if "##" in name]
    for path, source in sources.items():
        for name in expand(source.names, macros_of(sources, path)) - source.own - source.defined:
            places = set(defined.get(name, ()))
            if "##" in name and name[0].islower():
                pattern = joined(name)
                fits = [other for other in defined if pattern.match(other.replace("##", ""))]
                places = {place for other in fits for place in defined[other]}
            elif not places:
                places = {place for pattern, each in patterns if pattern.match(name) for place in each}
            beside = {place for place in places if os.path.dirname(place) == os.path.dirname(path)}
            for to in beside or places:
                if module_of(to) != module_of(path) and sees(path, to):
                    edges[module_of(path)][module_of(to)].add(name)
    return edges


def circles(edges):
    """Strongly connected components of more than one module (Tarjan's), largest first."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for to in sorted(edges.get(node, ())):
            if to not in order:
                visit(to)
            if to in stack:
                low[node] = min(low[node], low[to])
        if low[node] == order[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return sorted(found, key=lambda circle: (-len(circle), circle))


def declared_elsewhere(sources):
    """Functions of a .c or .cu that a header declares that is not its own, but for what users call: by folder."""
    found = collections.defaultdict(list)
    for path, source in sources.items():
        if not path.endswith((".c", ".cu")):
            continue
        headers = [header for header in seen_headers(sources, path) if header != path and not PUBLIC.match(header)]
        own = {name for header in headers if module_of(header) == module_of(path) for name in sources[header].declared}
        others = {name for header in headers for name in sources[header].declared}
        found[os.path.dirname(path)] += sorted(source.defined & others - own)
    return {folder: names for folder, names in found.items() if names}


def show_edges(circle, edges):
    for module in circle:
        for to in circle:
            if to in edges.get(module, ()):
                print(f"    {module} -> {to}: {', '.join(sorted(edges[module][to]))}")


def read_known():
    known, elsewhere = {"includes": [], "calls": []}, 0
    with open(KNOWN) as file:
        for line in file:
            words = line.split("#")[0].split()
            if words and words[0] == "elsewhere":
                elsewhere = int(words[1])
            elif words:
                known[words[0]].append(set(words[1:]))
    return known, elsewhere


def write_known(found, elsewhere):
    with open(KNOWN) as file:
        lines = [line for line in file if line.startswith("#")]
    lines += [f"{kind} {' '.join(circle)}\n" for kind in found for circle in found[kind]]
    with open(KNOWN, "w") as file:
        file.writelines([*lines, f"elsewhere {elsewhere}\n"])


def judge(kind, found, known):
    """Prints the circles; how many of them are not within a known one."""
    new = 0
    for circle in found:
        fits = any(set(circle) <= each for each in known)
        new += not fits
        where = os.path.commonpath(circle) + ("" if fits else ", NEW")
        print(f"{kind}: a circle of {len(circle)} in {where}: {' '.join(circle)}")
    return new


def still(known, found):
    """Of a known circle what is still in one."""
    return {module for circle in found if set(circle) <= known for module in circle}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", action="store_true", help="what each circle consists of")
    parser.add_argument("--write", action="store_true", help="take what is gone out of the list of known circles")
    parser.add_argument("tree", nargs="?", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    given = parser.parse_args()
    os.chdir(given.tree)
    sources = read_sources()
    defined = definitions(sources)
    edges = {"includes": includes(sources), "calls": calls(sources, defined)}
    found = {kind: circles(graph) for kind, graph in edges.items()}
    known, elsewhere_most = read_known()
    new = 0
    for kind, each in found.items():
        new += judge(kind, each, known[kind])
        for circle in each if given.edges else ():
            print(f"  of the circle of {len(circle)}:")
            show_edges(circle, edges[kind])
    elsewhere = declared_elsewhere(sources)
    count = sum(map(len, elsewhere.values()))
    print(f"{count} functions are declared in a header that is not their file's own, {elsewhere_most} are known")
    for folder in sorted(elsewhere) if given.edges or count > elsewhere_most else ():
        print(f"  {folder} {len(elsewhere[folder])}: {' '.join(sorted(elsewhere[folder]))}")
    if new == 0 and count <= elsewhere_most and given.write:
        write_known(found, count)
    elif count < elsewhere_most or any(still(each, found[kind]) != each for kind in known for each in known[kind]):
        print(f"{KNOWN} names more than there is: check_modules.py --write")
    return 1 if new > 0 or count > elsewhere_most else 0


if __name__ == "__main__":
    sys.exit(main())
