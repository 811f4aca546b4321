#!/bin/bash
# Runs inside the container of run.sh, as a unit of a booted systemd. Prints "ok - what" or "not ok - what" for each
# promise of gemmd.service, and the pauses that clients saw; then the machine ends.
set -u
exec >/result 2>&1
cd /tmp || exit 1
passed=0 failed=0

check() {
  local what=$1
  shift
  if "$@" >/tmp/check.log 2>&1; then
    echo "ok - $what"
    passed=$((passed + 1))
  else
    echo "not ok - $what"
    sed 's/^/    /' /tmp/check.log | tail -n 20
    failed=$((failed + 1))
  fi
}

property() { systemctl show -P "$1" gemmd.service; }
is() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; return 1; }; }
until_ok() { # tries for a while
  local i
  for i in $(seq 300); do
    "$@" >/tmp/until.log 2>&1 && return 0
    sleep 0.1
  done
  cat /tmp/until.log
  return 1
}
status() { gemmctl status --json; }
active() { is "$(property ActiveState)" active; }
worker() { status | grep '"pid"' | tail -n 1 | tr -dc 0-9; }

# A weight of ones: with rows of ones, every element of y is K = 128.
make_model() {
  local header='{"w":{"dtype":"F32","shape":[64,128],"data_offsets":[0,32768]}}'
  { printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"; ones 8192; } >/tmp/model.safetensors
  ones 256 >/tmp/x.f32
}
ones() { for _ in $(seq "$1"); do printf '\0\0\200?'; done; }
product_is_right() {
  gemmctl matmul "${1:-w}" --x /tmp/x.f32 --y /tmp/y.f32 &&
    is "$(od -An -tf4 -v -w4 /tmp/y.f32 | sort -u | tr -d ' ')" 128
}
weights_are() { is "$(gemmctl weights --json | grep -c '"name"')" "$1"; }

make_model
systemctl is-system-running --wait >/dev/null

# ---- the package
check "the package has enabled the socket and the service" systemctl is-enabled gemmd.socket gemmd.service
check "and started them" until_ok gemmctl ping
check "the exporter is not enabled" sh -c '[ "$(systemctl is-enabled gemmd-metrics.service)" = disabled ]'
check "its configuration is a conffile" sh -c 'dpkg-query -W -f "\${Conffiles}" gemmd | grep -q /etc/gemmd/gemmd.conf'
complete_words() { # what completion makes of a command line
  bash -c '. /usr/share/bash-completion/completions/gemmctl; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gemmctl; echo "${COMPREPLY[*]}"' - "$@"
}
check "commands complete" is "$(complete_words gemmctl dr)" drain
check "options complete" is "$(complete_words gemmctl ping --d)" --deep
check "manual pages are there" test -s /usr/share/man/man8/gemmd.8.gz -a -s /usr/share/man/man1/gemmctl.1.gz
check "programs can be linked with the library" test -e "$(readlink -f /usr/lib/*/libgemmclient.so)"
systemctl --quiet disable --now gemmd.socket gemmd.service

# ---- the units
check "systemd-analyze verify" systemd-analyze verify --man=no gemmd.service gemmd.socket gemmd-metrics.service
systemd-analyze security --no-pager gemmd.service | tail -n 1
check "exposure of at most 2.0" systemd-analyze security --no-pager --threshold=20 gemmd.service
systemd-analyze security --no-pager gemmd-metrics.service | tail -n 1
check "exposure of the exporter" systemd-analyze security --no-pager --threshold=20 gemmd-metrics.service
check "the socket is enabled and started" systemctl enable --now gemmd.socket
check "the service is not running yet" is "$(property ActiveState)" inactive
check "the socket belongs to the group gemmd" is "$(stat -c '%U %G %a' /run/gemmd/gemmd.sock)" "gemmd gemmd 660"
check "the first client starts the service" gemmctl ping
check "it has said READY" is "$(property ActiveState)" active
check "it says what it serves" grep -q 'Serving 1 device, backend cpu' <(property StatusText)
check "it runs as gemmd" is "$(ps -o user= -p "$(property MainPID)")" gemmd
check "the service is enabled" systemctl enable gemmd.service

# ---- who may
useradd -M -G gemmd alice
useradd -M -G gemmd bob
useradd -M -G gemmd,gemmd-admin carol
useradd -M mallory
chmod 644 /tmp/model.safetensors /tmp/x.f32
as() { setpriv --reuid "$1" --regid "$1" --init-groups "${@:2}"; }
load() { gemmctl load /tmp/model.safetensors --tensor w --format int8 --name "$1"; }
export -f load
check "root loads for all" load w
check "a product is right" product_is_right
check "a member of gemmd gets in" as alice gemmctl ping
check "who is in neither group does not" sh -c '! setpriv --reuid mallory --regid mallory --init-groups gemmctl ping'
check "a member loads for itself" as alice bash -c 'load hers && gemmctl weights hers --json | grep -q private'
check "another member does not see that" sh -c '! setpriv --reuid bob --regid bob --init-groups gemmctl weights hers --json | grep -q hers'
check "a member may not drain" sh -c '! setpriv --reuid alice --regid alice --init-groups gemmctl drain'
check "an admin loads for all" as carol bash -c 'load theirs && gemmctl weights theirs --json | grep -q "\"all\""'
check "an admin drops another's" as carol gemmctl unload hers

# ---- deaths, with clients at work. The file of the weights is gone.
rm /tmp/model.safetensors
bench() { gemm-bench --weight w --m 1 --clients 2 --seconds "$1" --json >/tmp/bench.json 2>/tmp/bench.err & }
pauses() { # products, and their longest and middle times, in us
  echo "    $(tr -d ' \n' </tmp/bench.json | grep -oE '"requests":[0-9]+|"failures":[0-9]+|"latency_us":\{[^}]*\}' | tr '\n' ' ')"
}
bench_went_well() {
  wait %1 || { cat /tmp/bench.err /tmp/bench.json; return 1; }
  grep -q '"failures": 0' /tmp/bench.json || { cat /tmp/bench.json; return 1; }
}

bench 6
for i in 1 2 3; do
  sleep 1
  kill -9 "$(worker)"
done
check "three workers killed under load: no product fails" bench_went_well
pauses
check "weights are kept" weights_are 2
check "the service was not restarted" is "$(property NRestarts)" 0
check "a product is right after the deaths of workers" product_is_right

kills=${GEMMD_KILLS:-12} # more than the unit allows at once
bench_until_stopped() { # products of all its rounds, in /tmp/products
  local count=0
  while [ ! -e /tmp/stop ]; do
    gemm-bench --weight w --m 1 --clients 2 --seconds 8 --json >/tmp/bench.json 2>/tmp/bench.err || return 1
    grep -q '"failures": 0' /tmp/bench.json || return 1
    count=$((count + $(tr -d ' \n' </tmp/bench.json | grep -o '"requests":[0-9]*' | head -n 1 | tr -dc 0-9)))
    echo "$count" >/tmp/products
  done
}
bench_until_stopped &
for i in $(seq "$kills"); do
  sleep 1
  kill -9 "$(property MainPID)"
  until_ok active
done
touch /tmp/stop
check "$kills supervisors killed under load: no product fails" bench_went_well
echo "    $(cat /tmp/products) products"
pauses
check "the service was restarted as often" is "$(property NRestarts)" "$kills"
check "descriptors came back from the store" weights_are 2
check "a product is right after the deaths of supervisors" product_is_right
journalctl -u gemmd -o cat | grep -o 'weights* under.*taken over.*' | tail -n 1

before=$(property MainPID)
bench 6
for i in 1 2 3; do
  sleep 1
  systemctl reload gemmd.service || echo "reload failed"
done
check "three reloads under load: no product fails" bench_went_well
pauses
check "in the same process" is "$(property MainPID)" "$before"
check "with the weights" weights_are 2
check "and they are right" product_is_right

mkdir -p /run/systemd/system/gemmd.service.d
printf '[Service]\nWatchdogSec=1\n' >/run/systemd/system/gemmd.service.d/watchdog.conf
systemctl daemon-reload
kill -9 "$(property MainPID)"
until_ok gemmctl ping >/dev/null
before=$(property NRestarts)
kill -STOP "$(property MainPID)"
another() { [ "$(property NRestarts)" -gt "$before" ] && gemmctl ping; }
check "a supervisor that stands still is replaced by the watchdog" until_ok another
check "with the weights, again" weights_are 2
check "and they are right, again" product_is_right

# ---- seen from outside
fetch() { python3 -c 'import socket; s = socket.create_connection(("127.0.0.1", 9400)); s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
while (b := s.recv(65536)): print(b.decode(), end="")'; }
export -f fetch
check "the exporter starts" systemctl start gemmd-metrics.service
served() { fetch | grep -q '^gemmd_device_ready{device="0",.*} 1'; }
check "numbers come by HTTP" until_ok served
systemctl stop gemmd-metrics.service
check "who is refused is in the journal, by field" sh -c \
  'gemmctl unload nothing; sleep 0.2; journalctl -u gemmd GEMMD_REASON=NOT_FOUND GEMMD_UID=0 GEMMD_REQUEST=weight_unload -o cat | grep -q nothing'
check "gemmctl ping --deep" gemmctl ping --deep

# ---- another version is installed
before=$(property MainPID)
bench 6
sleep 1
check "the package installs over itself" dpkg --install /var/tmp/gemmd_*.deb
check "an upgrade under load: no product fails" bench_went_well
pauses
check "the new version has taken over in place" is "$(property MainPID)" "$before"
check "with the weights, once more" weights_are 2
check "and they are right, once more" product_is_right

# ---- the end
check "restart keeps the weights" sh -c 'systemctl restart gemmd.service && gemmctl weights --json | grep -q theirs'
check "the journal has its lines, with their priorities" sh -c \
  'journalctl -u gemmd -p warning -o cat | grep -q "was ended by signal 9" && journalctl -u gemmd -o cat | grep -q "ready: 1 device"'
check "stop" systemctl stop gemmd.service gemmd.socket
check "nothing is left running" sh -c '! pgrep -x gemmd'
check "the socket is gone" test ! -e /run/gemmd/gemmd.sock
check "the service ended well" is "$(property Result)" success
check "start" systemctl start gemmd.socket gemmd.service
check "stop has freed the weights" weights_are 0
systemctl stop gemmd.service gemmd.socket

echo 'colour = blue' >>/etc/gemmd/gemmd.conf
given_up() { is "$(property ActiveState) $(property SubState)" "failed failed"; }
systemctl start gemmd.service
check "a configuration that is wrong is given up" until_ok given_up
check "at the first start" is "$(property NRestarts)" 0
check "and the journal says what is wrong" sh -c 'journalctl -u gemmd -o cat | grep -q colour'

# ---- the package goes
check "purge" dpkg --purge gemmd libgemmclient-dev libgemmclient-direct0 libgemmclient-cuda0 libgemmclient0
left() { find / -xdev -iname '*gemm*' ! -path '/proc/*' ! -path '/sys/*' ! -path '/tmp/*' ! -path '/var/tmp/*' ! -path '/var/log/*'; }
check "no file is left" is "$(left)" ""
check "no user and no group is left" sh -c '! getent passwd gemmd && ! getent group gemmd && ! getent group gemmd-admin'
check "no unit is left" sh -c '! systemctl list-unit-files | grep -q gemmd'

echo "$passed passed, $failed failed"
