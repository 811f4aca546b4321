#!/bin/bash
# Two snapshots of the CPU's small products are the same; one answer that changes, a line that is missing and a file
# that is missing are each told.
set -eu
. "$(dirname "$0")/../support/daemon/daemon.sh"
compare=$root/tests/snapshot/compare.py
failures=0

# expect CODE TEXT: the exit status of the comparison, and a text that must be in what it says.
expect() {
  local got=0 said
  said=$("$compare" "$work/a" "$work/b") || got=$?
  if [ "$got" -ne "$1" ] || [[ "$said" != *"$2"* ]]; then
    echo "compare.py: exit $got, \"$said\"; expected $1, \"$2\""
    failures=$((failures + 1))
  fi
}

"$build/snapshot" --backend cpu --terms 1000000 "$work/a" >"$work/a.log" &
"$build/snapshot" --backend cpu --terms 1000000 "$work/b" >"$work/b.log"
wait $!
for part in choices:5000 products:500 paths:100; do
  lines=$(wc -l <"$work/a/${part%:*}.txt")
  [ "$lines" -ge "${part#*:}" ] || { echo "$part: $lines lines" && failures=$((failures + 1)); }
done
# every product was computed
if grep -vE '^weight |: [0-9a-f]{16}$' "$work/a/products.txt" "$work/a/paths.txt"; then failures=$((failures + 1)); fi
expect 0 " 0 differ"
sed -i '7s/: .*/: 0123456789abcdef/' "$work/b/products.txt"
expect 1 "B 0123456789abcdef"
sed -i 7d "$work/b/products.txt"
expect 1 "B (missing)"
rm "$work/b/products.txt"
expect 1 "products.txt: on one side alone"
[ "$failures" -eq 0 ]
