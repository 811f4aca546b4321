#!/bin/bash
# gemmd as a shell starts it: both ways to write an option, what each mistake is told, and descriptors that are closed.
set -u
. "$(dirname "$0")/../support/daemon/daemon.sh"
failures=0

# expect CODE FIRST_LINE ARGUMENTS...
expect() {
  local code=$1 line=$2 said got
  shift 2
  said=$("$build/gemmd" "$@" 2>&1)
  got=$?
  if [ "$got" -ne "$code" ] || [ "${said%%$'\n'*}" != "$line" ]; then
    echo "gemmd $*: exit $got, \"${said%%$'\n'*}\"; expected $code, \"$line\""
    failures=$((failures + 1))
  fi
}

expect 2 'gemmd: "--socket" needs a value' --socket
expect 2 'gemmd: "socket" is no option' socket x
expect 2 'gemmd: "socket=x" is no option' socket=x
expect 2 'gemmd: "--=x" is no option' --=x
expect 2 'gemmd: unknown option "bogus"' --bogus=1
expect 2 'gemmd: unknown option "bogus"' --bogus 1
expect 2 'gemmd: in_flight must be 1..64, got 65' --in_flight=65
expect 2 'gemmd: in_flight must be 1..64, got 65' --in_flight 65
expect 2 "gemmd: $work/none: No such file or directory" --config="$work/none"
expect 2 "gemmd: $work/none: No such file or directory" --config "$work/none"
echo 'in_flight = 65' >"$work/wrong.conf"
expect 2 "gemmd: $work/wrong.conf:1: in_flight must be 1..64, got 65" --config="$work/wrong.conf"

most=$(printf '/%.0s' {1..107}) # of bytes in a socket's path
expect 0 '' --check --backend cpu --socket "$most"
"$build/gemmd" --check --backend cpu --socket "$most" --sessions_max 4 2>&1 |
  grep -q 'only admins are served: sessions_reserved is 4 of sessions_max 4' ||
  { echo "places for admins alone without a warning"; failures=$((failures + 1)); }
expect 2 'gemmd: /dev/zero:1: the line is too long, or binary' --check --config /dev/zero
expect 2 'gemmd: socket must be a path of 1..107 bytes, got 108' --check --backend cpu --socket "$most/"
expect 2 'gemmd: socket must be a path of 1..107 bytes, got 0' --check --backend cpu --socket ''

for word in --help --version; do
  "$build/gemmd" $word >/dev/full 2>"$work/why"
  [ $? -eq 1 ] && grep -q '^gemmd: cannot write to stdout: No space left on device$' "$work/why" && continue
  echo "gemmd $word to a full disk: $(cat "$work/why")"
  failures=$((failures + 1))
done

# Whoever starts it has closed some of the first three descriptors.
for closed in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
  eval "\"\$build/gemmd\" --socket \"\$GEMMD_SOCKET\" --backend cpu $closed &" 2>/dev/null
  await $! 2>/dev/null && kill $!
  wait $! || { echo "gemmd $closed: exit $?"; failures=$((failures + 1)); }
done
[ "$failures" -eq 0 ]
