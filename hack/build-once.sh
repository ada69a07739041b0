#!/usr/bin/env bash
# Builds programs in a Go module of this repository, unless they are built already, and prints the directory that holds them:
# hack/build-once.sh MODULE-DIRECTORY REQUIRED-MODULE PROGRAM=PACKAGE ...
#
# The programs have the version of the required module. Progress goes to stderr. The programs are kept outside the repository, in one directory per version of the sources, so that
# clones share them: $XDG_CACHE_HOME (or ~/.cache)/merchant-operator/<name of the module directory>.
set -euo pipefail
cd "$1"
module=${PWD##*/} required=$2
shift 2

say() { printf '%s: %s\n' "$module" "$*" >&2; }

export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly
unset GOOS GOARCH # the programs run on this machine, also when something else is cross-compiled

version=$(awk -v required="$required" '$1 == required { print $2 }' go.mod)
ldflags="-s -w"
if [[ $required == k8s.io/kubernetes ]]; then
  IFS=. read -r major minor _ <<<"${version#v}"
  stamp=k8s.io/component-base/version
  ldflags+=" -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor -X $stamp.gitTreeState=clean"
fi

shopt -s nullglob
sources=$({ cat go.mod go.sum ./*/*.go; go env GOOS GOARCH; echo "$ldflags"; } | git hash-object --stdin)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/merchant-operator/$module
programs=$cache/$version-${sources:0:12}

if [[ ! -d $programs ]]; then
  mkdir -p "$cache"
  # One clone builds, the others wait. Without flock (macOS) both build, and the first to finish wins.
  if command -v flock >/dev/null; then
    exec 9>"$cache/.lock"
    flock --nonblock 9 || { say "another build is running; waiting for it"; flock 9; }
    rm -rf "$cache"/.building.* # of a build that was killed
  fi
fi
if [[ -d $programs ]]; then
  echo "$programs"
  exit
fi

unfinished=$(mktemp -d "$cache/.building.XXXXXX")
trap 'rm -rf "$unfinished"' EXIT

# Turns the output of `go build -v` into a running count, and passes everything else on.
show_progress() {
  local tty=0
  [[ -t 2 ]] && tty=1
  awk -v name="$module:   $1" -v tty="$tty" '
    function count() {
      if (tty) printf "\r\033[K%s: %d modules fetched, %d packages compiled", name, fetched, compiled
      else if ((fetched + compiled) % 250 == 0) printf "%s: %d modules fetched, %d packages compiled\n", name, fetched, compiled
      fflush()
    }
    /^go: downloading / { fetched++; count(); next }
    !/ /                { compiled++; count(); next }
                        { print; fflush() }
    END                 { if (tty && fetched + compiled) printf "\r\033[K" }' >&2
}

say "building ${*%%=*} of $required $version once, into $programs (some minutes)"
for program; do
  name=${program%%=*} since=$SECONDS
  say "building $name ..."
  # The lock's file descriptor stays with this script: a child that hangs must not hold it.
  go build -v -trimpath -ldflags "$ldflags" -o "$unfinished/$name" "${program#*=}" 2>&1 9>&- | show_progress "$name"
  say "built $name in $((SECONDS - since)) s"
done

# A rename is atomic: if the directory exists, it is complete.
[[ -d $programs ]] || mv "$unfinished" "$programs"
echo "$programs"
