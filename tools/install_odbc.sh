#!/bin/sh
# pyodbc needs the machine's ODBC driver manager. Installs Debian's package where that is possible, and says how elsewhere.
set -eu
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -qq -y --no-install-recommends unixodbc >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends unixodbc; } >/dev/null
else
  echo "SQL Server's code needs the ODBC driver manager: install unixODBC (Debian: unixodbc; macOS: brew install unixodbc)" >&2
fi
