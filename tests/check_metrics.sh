#!/bin/sh
# Every metric that the alert rules and the dashboard name is one that is written.
cd "$(dirname "$0")/.." || exit 2
found=0
names=$(grep -ohE 'gemmd_[a-z_]+' deploy/gemmd.rules.yml deploy/gemmd.dashboard.json | sort -u)
[ -n "$names" ] || { echo "the rules and the dashboard name no metric"; exit 1; }
for name in $names; do
  base=$(echo "${name#gemmd_}" | sed -E 's/_(bucket|sum|count)$//')
  grep -qE "\"(${name#gemmd_}|$base)\"|gemmd_$base\{" daemon/supervisor/metrics.c client/ctl/metrics_text.c ||
    { echo "$name is not written"; found=1; }
done
exit $found
