#!/usr/bin/env bash
# Installs the servers that the tests start themselves. Debian and Ubuntu; elsewhere it says what is missing.
# Nothing is configured or left running: the tests use their own ports and folders.
set -euo pipefail

# program:package
wanted=(
  redis-server:redis-server
  redis-sentinel:redis-sentinel
  redis-cli:redis-tools
  gcc:gcc
)

export PATH="$PATH:/usr/sbin:/usr/local/sbin:/sbin"
missing=()
for pair in "${wanted[@]}"; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "The tests need these servers, by their Debian names: ${missing[*]}. Please install them and try again." >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "The tests need: ${missing[*]}. Please run: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

# A package that starts its service at once would take ports and cores from the tests.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
