#!/bin/bash
# check_modules.py on small trees: circles of calls, of includes, by macros, joined names and tables are found, known
# ones pass and may shrink, and what is no circle is none.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# tree: an empty one.
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/proto" "$work/tree/daemon/worker" "$work/tree/client" "$work/tree/kernels" "$work/tree/tests"
  echo "elsewhere 0" >"$work/tree/tests/check_modules.known"
}
# file PATH: from standard input.
file() { cat >"$work/tree/$1"; }
# expect NAME CODE TEXT OPTIONS...
expect() {
  local name=$1 code=$2 text=$3 said got=0
  shift 3
  said=$("$root/tests/check_modules.py" "$@" "$work/tree" 2>&1) || got=$?
  if [ "$got" -ne "$code" ] || [[ "$said" != *"$text"* ]]; then
    echo "$name: exit $got, \"$said\"; expected $code, \"$text\""
    failures=$((failures + 1))
  fi
}

# a -> b, by a call; b names a's function in a comment, in a string, as a field and as a local only.
one_way() {
  tree
  printf 'void a_go(void);\n' | file proto/a.h
  printf '#include "a.h"\n#include "b.h"\nvoid a_go(void) {\n  b_go(1);\n}\n' | file proto/a.c
  printf 'void b_go(int x);\n' | file proto/b.h
  {
    printf '#include "b.h"\n/* a_go */\nstruct s { int a_go; };\nvoid b_go(int x) {\n'
    printf '  struct s s = {.a_go = x};\n  int a_go = s.a_go;\n  puts("a_go()"), (void)a_go;\n}\n'
  } | file proto/b.c
}
one_way
expect "one way" 0 "0 functions are declared"
printf 'void a_go(void);\n#include "b.h"\nvoid b_go(int x) {\n  a_go();\n}\n' | file proto/b.c
expect "a call back" 1 "calls: a circle of 2 in proto, NEW: proto/a proto/b"
expect "what closes it" 1 "proto/b -> proto/a: a_go" --edges
printf 'calls proto/a proto/b proto/c\nelsewhere 0\n' | file tests/check_modules.known
expect "a known one that is smaller" 0 "names more than there is"
expect "the same, written" 0 "calls: a circle of 2" --write
[ "$(cat "$work/tree/tests/check_modules.known")" = "$(printf 'calls proto/a proto/b\nelsewhere 0')" ] ||
  { echo "not written" && failures=$((failures + 1)); }
one_way
printf '#include "a.h"\nvoid b_go(int x);\n' | file proto/b.h
expect "what is included back alone is no circle of calls" 1 "includes: a circle of 2"
one_way
printf '#define LOOK(x) a_##x\nvoid b_go(int x);\n' | file proto/b.h
printf '#include "b.h"\nvoid (*const table[])(void) = {a_go};\nvoid b_go(int x) {\n}\n' | file proto/b.c
expect "a table" 1 "calls: a circle of 2"
one_way
printf '#define TURN() a_go()\nvoid b_go(int x);\n' | file proto/b.h
printf '#include "b.h"\nvoid b_go(int x) {\n  TURN();\n}\n' | file proto/b.c
expect "a macro of a header" 1 "calls: a circle of 2"
one_way
printf '#include "b.h"\n#define ROW(name) proto_##name();\nvoid b_go(int x) {\n#include "rows.def"\n}\n' |
  file proto/b.c
printf '#include "b.h"\nvoid proto_turn(void) {\n  b_go(1);\n}\n' | file proto/a.c
expect "joined names" 1 "calls: a circle of 2"
# the same names in programs that do not see each other
one_way
printf 'void b_go(int x) {\n  a_go();\n}\n' | file daemon/worker/b.c
printf 'void a_go(void) {\n}\n' | file daemon/worker/a.c
expect "two programs" 0 "0 functions"
# a function that another header declares
one_way
printf '#include "a.h"\nvoid b_other(void) {\n}\nvoid b_go(int x) {\n}\n' | file proto/b.c
printf 'void a_go(void);\nvoid b_other(void);\n' | file proto/a.h
expect "declared elsewhere" 1 "proto 1: b_other"
[ "$failures" -eq 0 ]
