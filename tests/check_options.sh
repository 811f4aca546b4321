#!/bin/sh
# Every option of daemon/options.def stands, with its default and its summary, in deploy/gemmd.conf and in
# deploy/gemmd.conf.5, and these two name no other.
cd "$(dirname "$0")/.." || exit 2
table=daemon/options.def file=deploy/gemmd.conf page=deploy/gemmd.conf.5
found=0

complain() {
  echo "$1"
  found=1
}

# name|default|summary|range of every row; a row in a form that this does not read is an error.
rows=$(sed -nE \
  -e 's/^STRING\(([a-z_0-9]+), "([^"|]*)", "([^"|]*)"\)$/\1|\2|\3|/p' \
  -e 's/^WORD\(([a-z_0-9]+), "([^"|]*)", "[^"|]*", "([^"|]*)"\)$/\1|\2|\3|/p' \
  -e 's/^NUMBER\(([a-z_0-9]+), ([0-9]+), ([0-9]+), ([0-9]+), "([^"|]*)"\)$/\1|\2|\5|From \3 to \4./p' "$table")
count=$(printf '%s\n' "$rows" | grep -c '|')
[ "$count" -gt 0 ] && [ "$count" -eq "$(grep -cE '^(STRING|WORD|NUMBER)\(' "$table")" ] ||
  complain "$table: only $count of its rows can be read"

# The line after the summary's comment, so that text and option belong together.
while IFS='|' read -r name default summary range; do
  line="#$name =${default:+ $default}"
  [ "$(grep -Fx -A1 "# $summary" "$file" | tail -n 1)" = "$line" ] ||
    complain "$file: lacks '# $summary' with '$line' below it"
  item=".It Sy $name No =${default:+ $default}"
  text=$(grep -Fx -A1 "$item" "$page" | tail -n 1 | tr '[:upper:]' '[:lower:]')
  [ "$text" = "$(printf '%s.' "$summary" | tr '[:upper:]' '[:lower:]')" ] ||
    complain "$page: lacks '$item' with '$summary.' below it"
  [ -z "$range" ] || [ "$(grep -Fx -A2 "$item" "$page" | tail -n 1)" = "$range" ] ||
    complain "$page: lacks '$range' below the summary of $name"
done <<END
$rows
END

names=$(printf '%s\n' "$rows" | cut -d'|' -f1)
for name in $(sed -nE 's/^#?([A-Za-z_0-9-]+) *=.*/\1/p' "$file") $(sed -nE 's/^\.It Sy ([^ ]+) No =.*/\1/p' "$page"); do
  printf '%s\n' "$names" | grep -Fqx "$name" || complain "$name is no option of $table"
done
for text in "$file" "$page"; do
  twice=$(sed -nE 's/^(#|\.It Sy )([a-z_0-9]+) (No )?=.*/\2/p' "$text" | sort | uniq -d)
  [ -z "$twice" ] || complain "$text: more than once: $twice"
done
exit $found
