#!/usr/bin/env bash
# Installs the servers and fault tools that the tests use. Debian and Ubuntu; elsewhere it says what is missing.
# Nothing is configured or left running: the tests start servers of their own, on their own ports and folders.
set -euo pipefail

wanted=(
  redis-server redis-sentinel redis-tools # and Valkey, which comes as a Python package
  postgresql pgbouncer                    # and a newer PostgreSQL, which comes as a Python package
  etcd-server                             # and a newer etcd, which comes as a Python package
  mariadb-server
  zookeeper default-jre-headless
  prometheus                              # scrapes a fleet, and promtool checks the rules
  chromium                                # looks at the dashboard and at the documentation
  iproute2 iptables                       # networks that can be cut, packets that get lost
  faketime                                # a server whose clock is wrong
  fish zsh                                # complete command lines, as bash does
  gcc                                     # builds the clock that can be set, for servers that faketime hangs
  tzdata                                  # time zones: the tests run where local time is not UTC
)

if ! command -v dpkg-query >/dev/null; then
  echo "The tests need these programs, by their Debian names: ${wanted[*]}." >&2
  echo "This system has no dpkg, so nothing was checked or installed; a missing one makes its tests fail." >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

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
