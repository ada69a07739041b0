#!/usr/bin/env bash
# Prints the path of a Valkey server: the one on the PATH, else Debian's, unpacked into
# $XDG_CACHE_HOME (or ~/.cache)/merchant-operator/valkey-<version>. The package is not installed, because it would start a service.
# Called by `hack/install.sh valkey`; progress goes to stderr.
set -euo pipefail

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'valkey: %s\n' "$*" >&2; exit 1; }

if command -v valkey-server >/dev/null; then
  command -v valkey-server
  exit
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/merchant-operator
for server in "$cache"/valkey-*/usr/bin/valkey-server; do
  if [[ -x $server ]]; then
    echo "$server"
    exit
  fi
done

if command -v brew >/dev/null && ! command -v apt-get >/dev/null; then
  say "Installing valkey: the tests run on it as well as on Redis"
  brew install valkey >&2
  command -v valkey-server
  exit
fi
release=$(. /etc/os-release 2>/dev/null && [[ ${ID:-} == debian ]] && echo "${VERSION_CODENAME:-}") || release=
[[ -n $release ]] || fail "this is neither Debian nor a machine with brew; put a valkey-server 8 on the PATH"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[[ -r $keys ]] || fail "$keys is missing; install debian-archive-keyring, or put a valkey-server 8 on the PATH"

# The mirror of this machine.
mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
  awk -v release="$release" '$1 == release { print $2; exit }')
[[ -n $mirror ]] || fail "the apt sources of this machine have no suite $release; put a valkey-server 8 on the PATH"

say "Fetching valkey-server for $release (or $release-backports) from this machine's mirror: the tests run on it as well as on Redis"
mkdir -p "$cache"
unfinished=$(mktemp -d "$cache/.valkey.XXXXXX")
trap 'rm -rf "$unfinished"' EXIT
# Own sources and package lists, so that no root is needed and those of the machine do not change. apt checks signatures as usual.
mkdir -p "$unfinished"/{lists/partial,cache/archives/partial,root}
for suite in "$release" "$release-backports"; do
  echo "deb [signed-by=$keys] $mirror $suite main"
done >"$unfinished/sources.list"
apt=(-qq -o "Dir::Etc::SourceList=$unfinished/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o "Dir::State::Lists=$unfinished/lists" -o "Dir::Cache=$unfinished/cache" -o APT::Sandbox::User=)
apt-get "${apt[@]}" update >&2
version=$(apt-cache "${apt[@]}" policy valkey-server | awk '$1 == "Candidate:" { print $2 }')
[[ $version == 8* ]] || fail "$release has valkey-server ${version:-in no suite}, not 8; put a valkey-server 8 on the PATH"
(
  cd "$unfinished"
  apt-get "${apt[@]}" download "valkey-server=$version" "valkey-tools=$version" >&2
  for package in ./*.deb; do dpkg -x "$package" root; done
)

# It needs the same libraries as redis-server.
if missing=$(ldd "$unfinished/root/usr/bin/valkey-server" | grep 'not found'); then
  packages=$(dpkg-deb -f "$unfinished"/valkey-tools_*.deb Depends | tr ',' '\n' | awk '{ print $1 }' | paste -sd ' ')
  fail "these libraries are missing: $missing. As root: apt-get install $packages"
fi
"$unfinished/root/usr/bin/valkey-server" --version >&2
directory=$cache/valkey-$version
[[ -d $directory ]] || mv "$unfinished/root" "$directory" # a rename is atomic
echo "$directory/usr/bin/valkey-server"
