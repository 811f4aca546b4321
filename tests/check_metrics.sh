#!/bin/sh
# Every metric that the alert rules name is one that `gemmctl metrics` writes.
cd "$(dirname "$0")/.." || exit 2
found=0
names=$(grep '^ *expr:' deploy/gemmd.rules.yml | grep -oE 'gemmd_[a-z_]+' | sort -u)
[ -n "$names" ] || { echo "deploy/gemmd.rules.yml names no metric"; exit 1; }
for name in $names; do
  grep -q "\"${name#gemmd_}\"" client/ctl/cmd_metrics.c || { echo "$name is not written by gemmctl metrics"; found=1; }
done
exit $found
