#!/usr/bin/env bash
# Installs what the tests need and Go modules cannot give: a real redis-server, Valkey, Node.js for the generator of
# TypeScript clients, and a C compiler for the race detector; and what a native node of hack/cluster runs on. Does nothing
# when it is there already.
#
#   hack/install.sh redis | valkey | nodejs | compiler | node
#
# `valkey` prints the path of its server, for REDIS_SERVER. Nothing else goes to stdout.
set -euo pipefail

case ${1:-} in
  redis)
    command=redis-server why="the tests run against a real redis-server"
    debian=redis-server brew=redis
    if [[ -n ${REDIS_SERVER:-} ]]; then # which is there, or the tests say that it is not
      exit
    fi
    ;;
  valkey)
    exec "$(dirname "${BASH_SOURCE[0]}")/valkey.sh"
    ;;
  nodejs)
    command="node npm" why="the tests generate a TypeScript client"
    debian="nodejs npm" brew=node
    ;;
  compiler)
    # What cgo uses, which may be more than a name.
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
    echo "usage: $0 redis | valkey | nodejs | compiler | node" >&2
    exit 2
    ;;
esac

# Debian keeps some of these where only root looks.
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
    command -v sudo >/dev/null || { echo "Neither root nor sudo. As root: apt-get install $debian" >&2; exit 1; }
    root="sudo env"
  fi
  # A bare image has no package lists yet, and old lists name packages that are gone.
  $root apt-get update -qq >&2
  # shellcheck disable=SC2086 # it may be several packages
  $root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $debian >&2
elif [[ -n $brew ]] && command -v brew >/dev/null; then
  brew install "$brew" >&2
else
  echo "There is neither apt-get nor brew here. Please put $command on the PATH: $why." >&2
  exit 1
fi
is_there || { echo "$command is still not on the PATH" >&2; exit 1; }
