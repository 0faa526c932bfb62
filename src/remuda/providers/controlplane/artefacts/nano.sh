#!/bin/sh
# Starts nano with a Python of the version it was packed with, and with nothing else of this host.
set -eu
home=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd -P)
for python in python@PYTHON@ python3 /usr/local/bin/python@PYTHON@ /usr/bin/python@PYTHON@ /usr/bin/python3; do
	found=$("$python" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
	[ "$found" != @PYTHON@ ] || exec "$python" -I -S "$home/lib" "$@"
done
echo "nano: this bundle needs Python @PYTHON@, which is not on this host" >&2
exit 127
