# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that unpack packages of another Debian than this machine's. Nothing is installed.

# apt_begins FOLDER BRANCH: apt as if this machine ran that branch and had nothing installed, with its files in FOLDER
# and the mirror that this machine's own apt uses. Prints why where it cannot be had.
apt_begins() {
  local site key=/usr/share/keyrings/debian-archive-keyring.gpg
  site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -m 1 '/debian/*$') ||
    { echo "apt here has no Debian mirror"; return 1; }
  [ -r "$key" ] || { echo "$key is missing (package debian-archive-keyring)"; return 1; }
  mkdir -p "$1/lists/partial" "$1/archives/partial"
  : >"$1/status"
  echo "deb [signed-by=$key] $site $2 main" >"$1/sources.list"
  apt_apart "$1" update >&2 || { echo "Debian's branch $2 cannot be read from this machine's mirror"; return 1; }
}

# apt_apart FOLDER ARGUMENT...: apt-get there.
apt_apart() {
  local apart=$1
  shift
  apt-get -o Dir::Etc::SourceList="$apart/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o Dir::State::Lists="$apart/lists" -o Dir::State::Status="$apart/status" -o Dir::Cache="$apart" \
    -o APT::Sandbox::User= -o APT::Install-Recommends=false -o Acquire::Languages=none \
    -o Acquire::Retries=2 -o Debug::NoLocking=1 -qq "$@"
}
