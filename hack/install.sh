#!/usr/bin/env bash
# Installs what the tests need and Go modules cannot give: a real redis-server, and a C compiler for the race
# detector. Does nothing when it is there already.
#
#   hack/install.sh redis | compiler
set -euo pipefail

case ${1:-} in
  redis)
    command=redis-server why="the tests run against a real redis-server"
    debian=redis-server brew=redis
    ;;
  compiler)
    # What cgo uses, which may be more than a name.
    read -r command _ <<<"$(go env CC)"
    why="the race detector needs cgo"
    debian="gcc libc6-dev" brew=gcc
    ;;
  *)
    echo "usage: $0 redis | compiler" >&2
    exit 2
    ;;
esac

if command -v "$command" >/dev/null; then
  exit
fi
echo "==> Installing $command: $why" >&2

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
elif command -v brew >/dev/null; then
  brew install "$brew" >&2
else
  echo "There is neither apt-get nor brew here. Please put $command on the PATH: $why." >&2
  exit 1
fi
command -v "$command" >/dev/null || { echo "$command is still not on the PATH" >&2; exit 1; }
