# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: stages with their times, and the tools that a fresh machine lacks.

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
TOOLS=$TARGET/tools
PYTHON=$TOOLS/venv/bin/python
STAGES=()
STAGE_START=0
STAGE_NAME=

# stage NAME: ends the stage before and begins this one.
stage() {
  local now=$SECONDS
  if [ -n "$STAGE_NAME" ]; then
    STAGES+=("$(printf '%-34s %4d s' "$STAGE_NAME" $((now - STAGE_START)))")
  fi
  STAGE_NAME=$1 STAGE_START=$now
  [ -z "$1" ] || printf '\n== %s\n' "$1"
}

# Prints what each stage took.
stages_table() {
  stage ""
  printf '\n'
  printf '%s\n' "${STAGES[@]}"
}

# Is a command, or a library by its soname, on this machine?
has_tool() {
  case $1 in
    *.so.*) /sbin/ldconfig -p | grep -F "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

# What only root could install, by command or library and Debian package; named before anything else is done.
root_tools() {
  local missing=() packages=()
  local pairs=(cc:gcc python3:python3 "$@") pair
  for pair in "${pairs[@]}"; do
    if ! has_tool "${pair%%:*}"; then
      missing+=("${pair%%:*}") packages+=("${pair##*:}")
    fi
  done
  # Debian ships venv apart from python3: it lacks where python3 does.
  if ! python3 -c 'import ensurepip' 2>/dev/null; then
    missing+=("python3 -m venv") packages+=(python3-venv)
  fi
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "missing on this machine: ${missing[*]}"
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${packages[@]}" >/dev/null
  else
    echo "root could install them with: apt-get install ${packages[*]}"
    return 1
  fi
}

# Rust, or the one command that installs it in the release that rust-toolchain.toml names.
rust_is_here() {
  local release
  release=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
  if ! command -v cargo >/dev/null 2>&1; then
    [ -r "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
  fi
  command -v cargo >/dev/null 2>&1 || {
    # One line, so that it can be copied as it stands.
    local install="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal"
    install+=" --default-toolchain $release -c rustfmt -c clippy"
    echo "Rust is missing. This installs Rust $release for your user; then run $0 again:" >&2
    echo "  $install" >&2
    return 1
  }
}

# python_tools [LIST...]: Python packages of scripts/requirements.txt and of further lists beside it, in a folder of the
# build, again only when a list changed.
python_tools() {
  local list stamp
  mkdir -p "$TOOLS"
  # One that was begun without what it needs has no pip.
  "$PYTHON" -m pip --version >/dev/null 2>&1 || { rm -f "$TOOLS"/*.done; python3 -m venv --clear "$TOOLS/venv"; }
  for list in requirements "$@"; do
    stamp=$TOOLS/$list.done
    cmp -s "scripts/$list.txt" "$stamp" && continue
    "$PYTHON" -m pip install -q --disable-pip-version-check --only-binary=:all: -r "scripts/$list.txt"
    cp "scripts/$list.txt" "$stamp"
  done
  PARTAGE_CUDA_HEADERS=$("$PYTHON" -c '
import nvidia.cu13, os
print(os.path.join(list(nvidia.cu13.__path__)[0], "include"))')
  export PARTAGE_CUDA_HEADERS PARTAGE_TEST_PYTHON=$PYTHON
}

# packages FOLDER LIST: a virtual environment with the packages of LIST, again only when the list changed.
packages() {
  local stamp=$1/$(basename "$2").done
  cmp -s "$2" "$stamp" && return 0
  # Each by its code: a caller that asks for the function's has switched `set -e` off.
  { [ -x "$1/bin/python" ] || python3 -m venv "$1"; } \
    && "$1/bin/python" -m pip install -q --disable-pip-version-check --only-binary=:all: -r "$2" \
    && cp "$2" "$stamp"
}

# disk_room FOLDER GB WHAT: is there so much room for WHAT on the file system of FOLDER? Says what lacks.
disk_room() {
  local free
  free=$(df --output=avail --block-size=1G "$1" | tail -n 1)
  [ "$free" -ge "$2" ] && return 0
  echo "$3 need $2 GB on the file system of $1, which has $free GB free" >&2
  return 1
}

# Is there a driver of the vendor's with at least one device?
has_gpu() {
  "$PYTHON" - <<'P' 2>/dev/null
import ctypes as c, sys
d = c.CDLL("libcuda.so.1"); n = c.c_int()
sys.exit(d.cuInit(0) or d.cuDeviceGetCount(c.byref(n)) or n.value < 1)
P
}
