#!/bin/bash
# PROTOCOL.md says what the .def files and headers say: every command, event, body, field, status and limit, with its
# numbers, and nothing that is gone. Offsets of shared memory are compared with those that the ring's test asserts.
# Prints the differences ("<": missing in the document, ">": only there); exit 1 where there are any.
set -u
cd "$(dirname "$0")/.." || exit 2
document=proto/PROTOCOL.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compare WHAT: standard input is what must be there; $work/document what is. It runs at the end of a pipe, so that
# what it has found out must outlive a subshell.
compare() {
  sort >"$work/expected"
  sort -o "$work/document" "$work/document"
  if [ ! -s "$work/expected" ]; then
    echo "$1: nothing to compare with"
    touch "$work/found"
  elif ! diff "$work/expected" "$work/document" >"$work/difference"; then
    echo "$1:"
    grep '^[<>]' "$work/difference"
    touch "$work/found"
  fi
}

# rows HEADING COLUMNS: the first columns of the tables between "HEADING" and the next heading, without their heads.
rows() {
  awk -F ' *[|] *' -v heading="$1" -v columns="$2" '
    /^#/ { inside = $0 ~ heading; body = $2; next }
    inside && /^[|] [0-9`]/ {
      line = $2
      for (i = 3; i <= columns + 1; i++) line = line " | " $i
      print line
    }' "$document"
}

{
  rows '^## Commands$' 9
  rows '^## Inside gemmd$' 9
} >"$work/document"
sed -nE 's/^COMMAND\(([0-9]+), (\w+), (\w+), (\w+), (\w+), (\w+), ([0-9]+), ([0-9]+), "(.*)"\)$/\1 | `\2` | \L\3 | \4\E | `\5` | `\6` | \7 | \8 | \9/p' \
  proto/wire/commands.def | compare commands

rows '^## Events$' 3 >"$work/document"
sed -nE 's/^EVENT\(([0-9]+), (\w+), (\w+)\)$/\1 | `\2` | `\3`/p' proto/wire/commands.def | compare events

rows '^## Statuses$' 4 >"$work/document"
sed -nE 's/^STATUS\(([0-9]+), (\w+), ([01]), "(.*)"\)$/\1 | `\2` | \3 | \4/p' proto/status.def |
  sed 's/ | 0 | / | no | /; s/ | 1 | / | yes | /' | compare statuses

rows '^### Fields$' 3 >"$work/document"
sed -nE 's/^FIELD\(([0-9]+), (\w+), "(.*)"\)$/\1 | `\2` | \3/p' proto/status.def | compare 'fields of errors'

rows '^## Limits$' 1 >"$work/document"
sed -nE 's/^#define (LIMIT_\w+) .*/`\1`/p' proto/limits.h | compare limits

awk -F ' *[|] *' '
  /^#### `/ { body = $1; gsub(/#### |`/, "", body); print body; next }
  /^#/ { body = "" }
  body && /^[|] `/ { print body " " $2 " " $3 " " $4 }' "$document" >"$work/document"
awk -F '[(), ]+' '
  /^MESSAGE\(/ { body = $2; print body }
  /^(U32|U64|I64|BOOL)\(/ { print body " `" $2 "` " tolower($1) " " tolower($3) }
  /^STR\(/ { print body " `" $2 "` text " ($3 - 1) " " tolower($4) }
  /^BIN\(/ { print body " `" $2 "` bytes " $3 " " tolower($4) }
  /^LIST\(/ { print body " `" $2 "` list of `" $3 "`, " $4 " " tolower($5) }' proto/wire/messages.def | compare bodies

rows '^## The arena$' 3 | awk -F ' [|] ' '{ print $1 " " $3 }' >"$work/document"
sed -nE 's/^ *assert_int_equal\(offsetof\(struct ring_\w+, (\w+)\), ([0-9]+)\);$/\2 `\1`/p' tests/unit/proto/shm/test_ring.c |
  compare 'layout of the arena'

[ ! -e "$work/found" ]
