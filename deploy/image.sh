#!/bin/sh
# usage: image.sh VERSION OUT PACKAGE.deb...: makes OUT, an OCI image layout with the tag VERSION: a minimal Debian with
# the packages, gemmd as its command, user and group 64100. Takes root, and the packages of `deploy/deps.sh image`.
set -eu
version=$1 out=$2
shift 2
[ "$(id -u)" -eq 0 ] || { echo "image.sh: a file system with other users' files takes root" >&2; exit 1; }
. /etc/os-release

work=$(mktemp -d /var/tmp/gemmd-image-XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages"
cp "$@" "$work/packages/"
# apt installs what the packages depend on; its lists and the manuals are left out
mmdebstrap --quiet --variant=minbase \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --customize-hook="copy-in $work/packages /var/tmp" \
  --customize-hook='chroot "$1" sh -c "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends /var/tmp/packages/*.deb"' \
  --customize-hook='rm -rf "$1/var/tmp/packages"' \
  --customize-hook='chroot "$1" groupadd --gid 64101 gemmd-container-admin' \
  --customize-hook='chroot "$1" groupadd --gid 64100 gemmd-container' \
  --customize-hook='chroot "$1" useradd --uid 64100 --gid 64100 --no-create-home --shell /usr/sbin/nologin gemmd-container' \
  --customize-hook='chroot "$1" install -d -o 64100 -g 64100 /var/lib/gemmd' \
  "$VERSION_CODENAME" "$work/root.tar"
# mmdebstrap leaves /run empty
mkdir -p "$work/run/gemmd"
tar --append -f "$work/root.tar" -C "$work" --owner=64100 --group=64100 --mode=0755 ./run/gemmd

rm -rf "$out"
umoci init --layout "$out"
umoci new --image "$out:$version"
umoci raw add-layer --image "$out:$version" "$work/root.tar"
umoci config --image "$out:$version" --config.user 64100:64100 --config.env 'PATH=/usr/bin:/bin' \
  --config.cmd /usr/bin/gemmd --config.cmd --config --config.cmd /etc/gemmd/gemmd.conf \
  --config.label "org.opencontainers.image.title=gemmd" --config.label "org.opencontainers.image.version=$version"
