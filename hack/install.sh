#!/usr/bin/env bash
# Installs system packages, if they are missing: redis-server, Valkey, a browser, proxies,
# Node.js for the generator of TypeScript clients and an OpenID provider, what examples/ need, a C compiler for the race detector,
# and what a native node of hack/cluster needs.
#
#   hack/install.sh (redis | valkey | browser | proxies | nodejs | examples | compiler | node)...
#
# `valkey` prints the path of its server, for REDIS_SERVER. Everything else goes to stderr.
set -euo pipefail

if (($# > 1)); then
  for name in "$@"; do "$0" "$name"; done
  exit
fi
case ${1:-} in
  redis)
    command=redis-server why="the tests run against a real redis-server"
    debian=redis-server brew=redis
    if [[ -n ${REDIS_SERVER:-} ]]; then # the tests check that it exists
      exit
    fi
    ;;
  valkey)
    exec "$(dirname "${BASH_SOURCE[0]}")/valkey.sh"
    ;;
  browser)
    command=chromium-headless-shell why="the tests open the payer's page in a real browser"
    # The font is also the one of the screenshot in README.
    debian="chromium-headless-shell fonts-dejavu-core" brew=
    if [[ -n ${CHROMIUM:-} ]]; then # the tests check that it exists
      exit
    fi
    ;;
  proxies)
    command="nginx caddy" why="the tests reach the API through proxies"
    debian="nginx caddy" brew="nginx caddy"
    ;;
  nodejs)
    command="node npm" why="the tests generate a TypeScript client, and run an OpenID provider and examples"
    debian="nodejs npm" brew=node
    ;;
  examples)
    command="curl openssl python3" why="the tests run the examples in each language"
    debian="curl openssl python3" brew="curl openssl python"
    ;;
  compiler)
    # The compiler that cgo uses; CC may include flags.
    read -r command _ <<<"$(go env CC)"
    why="the race detector needs cgo"
    debian="gcc libc6-dev" brew=gcc
    ;;
  node)
    command="containerd ctr runc iptables ipset ip nsenter /usr/lib/cni/ptp"
    why="a Kubernetes node runs containers"
    debian="containerd runc containernetworking-plugins iptables ipset iproute2 util-linux" brew=
    ;;
  *)
    echo "usage: $0 (redis | valkey | browser | proxies | nodejs | examples | compiler | node)..." >&2
    exit 2
    ;;
esac

# Debian installs some of these into directories that are only on the PATH of root.
PATH=$PATH:/usr/sbin:/sbin
# shellcheck disable=SC2086 # it may be several
is_there() { for one in $command; do command -v "$one" >/dev/null || return; done; }

if is_there; then
  exit
fi
echo "==> Installing ${debian:-$command}: $why" >&2

if command -v apt-get >/dev/null; then
  root="env"
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || { echo "Root or sudo is needed. Run as root: apt-get install $debian" >&2; exit 1; }
    root="sudo env"
  fi
  # A minimal image has no package lists, and old lists name packages that were removed.
  $root apt-get update -qq >&2
  # shellcheck disable=SC2086 # it may be several packages
  $root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $debian >&2
elif [[ -n $brew ]] && command -v brew >/dev/null; then
  # shellcheck disable=SC2086 # it may be several packages
  brew install $brew >&2
else
  echo "Neither apt-get nor brew was found. Put $command on the PATH: $why." >&2
  exit 1
fi
is_there || { echo "$command is still not on the PATH" >&2; exit 1; }
