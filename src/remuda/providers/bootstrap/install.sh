
# Installs the node agent on this machine and starts it. What stands above this line says for which server.
#
# Everything is a function and the last line calls the first of them: a script that was cut short on its way does
# nothing. What is fetched goes to a private directory; nothing of this machine is touched before all of it is there
# and verified. Running it again is fine.

set -eu
umask 077

usage() {
	cat <<'END'
usage: system-agent-install.sh [options]      (as root)
  -s, --server URL            the management server, https://…            CATTLE_SERVER
  -t, --token TOKEN           proves that this machine may register       CATTLE_TOKEN
  -c, --ca-checksum SUM       sha256 of what the server has at /cacerts   CATTLE_CA_CHECKSUM
  -e, --etcd                  roles of this machine                       CATTLE_ROLE_ETCD=true
  -p, --controlplane                                                      CATTLE_ROLE_CONTROLPLANE=true
  -w, --worker                                                            CATTLE_ROLE_WORKER=true
  -a, --all-roles             all three
      --no-roles              none; the server knows them                 CATTLE_ROLE_NONE=true
  -n, --node-name NAME        default: this machine's host name           CATTLE_NODE_NAME
      --address ADDRESS       an address, an interface, or a word such    CATTLE_ADDRESS
  -i, --internal-address …    as awspublic, doprivate, ipify              CATTLE_INTERNAL_ADDRESS
  -l, --label KEY=VALUE       may be repeated                             CATTLE_LABELS
      --taint KEY=VALUE:EFFECT                                            CATTLE_TAINTS
REMUDA_AGENT=upstream installs Rancher's system-agent, if the server has it; it needs no Python.
END
}

say() { printf 'remuda: %s\n' "$*"; }

fail() {
	printf 'remuda: %s\n' "$*" >&2
	exit 1
}

main() {
	[ "${DEBUG:-}" != 1 ] || set -x
	read_arguments "$@"
	check_arguments
	find_tools
	work=$(mktemp -d) || fail "cannot make a temporary directory"
	trap 'rm -rf "$work"' EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	trust_server
	resolve_addresses
	choose_agent
	if [ "$agent" = upstream ]; then
		install_upstream
	else
		install_ours
	fi
}

# -- what is wanted ------------------------------------------------------------------------------------------------

read_arguments() {
	while [ $# -gt 0 ]; do
		case $1 in
		--*=*)
			option=${1%%=*} value=${1#*=}
			shift
			set -- "$option" "$value" "$@"
			;;
		esac
		case $1 in
		-e | --etcd) CATTLE_ROLE_ETCD=true ;;
		-p | --controlplane) CATTLE_ROLE_CONTROLPLANE=true ;;
		-w | --worker) CATTLE_ROLE_WORKER=true ;;
		-a | --all-roles) CATTLE_ROLE_ETCD=true CATTLE_ROLE_CONTROLPLANE=true CATTLE_ROLE_WORKER=true ;;
		--no-roles) CATTLE_ROLE_NONE=true ;;
		-h | --help)
			usage
			exit 0
			;;
		-s | --server | -t | --token | -c | --ca-checksum | -n | --node-name | --address | -i | --internal-address | \
			-l | --label | --labels | --taint | --taints)
			[ $# -ge 2 ] || fail "$1 needs a value"
			take "$1" "$2"
			shift
			;;
		*)
			usage >&2
			fail "$1 is none of these options"
			;;
		esac
		shift
	done
}

take() {
	case $1 in
	-s | --server) CATTLE_SERVER=$2 ;;
	-t | --token) CATTLE_TOKEN=$2 ;;
	-c | --ca-checksum) CATTLE_CA_CHECKSUM=$2 ;;
	-n | --node-name) CATTLE_NODE_NAME=$2 ;;
	--address) CATTLE_ADDRESS=$2 ;;
	-i | --internal-address) CATTLE_INTERNAL_ADDRESS=$2 ;;
	-l | --label | --labels) CATTLE_LABELS="${CATTLE_LABELS:+$CATTLE_LABELS,}$2" ;;
	--taint | --taints) CATTLE_TAINTS="${CATTLE_TAINTS:+$CATTLE_TAINTS,}$2" ;;
	esac
}

check_arguments() {
	if [ -z "${REMUDA_HOST_ROOT:-}" ] && [ "$(id -u)" != 0 ]; then
		fail "this must run as root: repeat it with sudo"
	fi
	server=${CATTLE_SERVER:-}
	server=${server%/}
	case $server in
	https://?*) ;;
	'') fail "no server is given: add --server https://…" ;;
	*) fail "the server must be an https:// URL, not $server" ;;
	esac
	CATTLE_CA_CHECKSUM=$(printf %s "${CATTLE_CA_CHECKSUM:-}" | tr 'A-F' 'a-f')
	strict=$(printf %s "${CATTLE_AGENT_STRICT_VERIFY:-${STRICT_VERIFY:-false}}" | tr '[:upper:]' '[:lower:]')
	if [ "$strict" = true ] && [ -z "$CATTLE_CA_CHECKSUM" ]; then
		fail "strict verification is asked for, but no CA checksum is given: add --ca-checksum"
	fi
	# Whoever has been told the CA never goes back to trusting any other.
	[ -z "$CATTLE_CA_CHECKSUM" ] || strict=true
	if [ "${CATTLE_ROLE_NONE:-}" = true ]; then
		CATTLE_ROLE_ETCD=false CATTLE_ROLE_CONTROLPLANE=false CATTLE_ROLE_WORKER=false
	fi
	case ${CATTLE_REMOTE_ENABLED:=true} in
	true)
		[ -n "${CATTLE_TOKEN:-}" ] || fail "no token is given: add --token"
		case "${CATTLE_ROLE_NONE:-}${CATTLE_ROLE_ETCD:-}${CATTLE_ROLE_CONTROLPLANE:-}${CATTLE_ROLE_WORKER:-}" in
		*true*) ;;
		*) fail "no role is given: add --etcd, --controlplane, --worker, or several of them" ;;
		esac
		;;
	esac
	: "${CATTLE_ADDRESS:=${REMUDA_HOST_ADDRESS:-}}"
	patience=${REMUDA_PATIENCE_SECONDS:-900}
}

find_tools() {
	python=
	for each in ${REMUDA_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 \
		/usr/libexec/platform-python; do
		if command -v "$each" >/dev/null 2>&1 && "$each" -I -c "$usable_python" >/dev/null 2>&1; then
			python=$(command -v "$each")
			break
		fi
	done
	curl=$(command -v "${REMUDA_CURL:-curl}" || :)
	if [ -z "$curl" ] && [ -z "$python" ]; then
		fail "this machine has neither Python 3.9 or newer nor curl: install python3 (or curl) and run this again"
	fi
}

# Some systems have a Python that lacks half of its library.
usable_python='
import sys
if sys.version_info < (3, 9): sys.exit(1)
import gzip, hashlib, http.client, json, ssl, subprocess, tarfile, threading, urllib.request, zipfile'

sha256() {
	if command -v sha256sum >/dev/null 2>&1; then
		sha256sum <"$1" | cut -c 1-64
	elif [ -n "$python" ]; then
		"$python" -I -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
	else
		openssl dgst -sha256 -r <"$1" | cut -c 1-64
	fi
}

# -- the network ---------------------------------------------------------------------------------------------------

# get URL FILE SECONDS [HEADERS]: one try. `trust` is the CA's file, "system", or "none"; HEADERS is a file of them, so
# that no secret is seen in a list of processes. When it fails, `why` says so, and `status` is the HTTP status or 000.
get() {
	status=000
	: >"$work/headers"
	if [ -n "$curl" ]; then
		get_by_curl "$@"
	else
		get_by_python "$@"
	fi
}

get_by_curl() {
	# A config file, because what is on the command line can be read by everybody.
	{
		case $trust in
		none) echo insecure ;;
		system) ;;
		*) echo "cacert = \"$trust\"" ;;
		esac
		if [ -n "${4:-}" ]; then
			sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/header = "/' -e 's/$/"/' "$4"
		else
			printf 'location\nproto-redir = "=https"\n'
		fi
	} >"$work/curl"
	failed=0
	status=$("$curl" --silent --show-error --config "$work/curl" --connect-timeout 20 --max-time "$3" \
		--dump-header "$work/headers" --output "$2" --write-out '%{http_code}' "$1" 2>"$work/errors") || failed=$?
	untrusted=no
	case $failed in
	0) judge_status "$1" "$2" ;;
	35 | 51 | 60)
		untrusted=yes
		why=$(one_line "$work/errors")
		return 1
		;;
	*)
		why=$(one_line "$work/errors")
		return 1
		;;
	esac
}

get_by_python() {
	failed=0
	"$python" -I -c "$python_get" "$1" "$2" "$3" "$trust" "${4:-}" >"$work/status" 2>"$work/errors" || failed=$?
	status=$(cat "$work/status")
	untrusted=no
	case $failed in
	0) judge_status "$1" "$2" ;;
	*)
		[ "$failed" != 60 ] || untrusted=yes
		status=000
		why=$(one_line "$work/errors")
		return 1
		;;
	esac
}

# Redirects are followed only where no secret is sent along.
python_get='
import shutil, ssl, sys, urllib.error, urllib.request
url, path, seconds, trust, headers = sys.argv[1:]
context = ssl.create_default_context(cafile=trust if trust not in ("system", "none") else None)
if trust == "none":
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_): return None
handlers = [urllib.request.HTTPSHandler(context=context)] + ([Stay()] if headers else [])
request = urllib.request.Request(url)
for line in open(headers, encoding="utf-8") if headers else ():
    request.add_header(*line.rstrip("\n").split(": ", 1))
try:
    answer = urllib.request.build_opener(*handlers).open(request, timeout=float(seconds))
except urllib.error.HTTPError as error:
    answer = error
except urllib.error.URLError as error:
    sys.stderr.write(str(error.reason))
    sys.exit(60 if isinstance(error.reason, ssl.SSLError) else 7)
except Exception as error:
    sys.stderr.write(str(error) or type(error).__name__)
    sys.exit(7)
with open(path, "wb") as file:
    shutil.copyfileobj(answer, file)
print(answer.status if hasattr(answer, "status") else answer.code)'

judge_status() {
	[ "$status" != 200 ] || return 0
	why="the server says $status"
	# What it says in words is for people, unless it is a page.
	if [ -s "$2" ] && [ "$(wc -c <"$2")" -lt 2000 ] && ! grep -q '<' "$2"; then
		why="$why: $(one_line "$2")"
	fi
	return 1
}

one_line() { tr -s '[:space:]' ' ' <"$1" | cut -c 1-500 | sed 's/ $//'; }

# patiently WHAT COMMAND…: until it works. The command ends everything itself where waiting would not help.
patiently() {
	what=$1
	shift
	waited=0
	pause=1
	until "$@"; do
		if [ "$waited" -ge "$patience" ]; then
			fail "$what: $why. Given up after $waited seconds"
		fi
		say "$what: $why; next try in $pause s"
		sleep "$pause"
		waited=$((waited + pause))
		pause=$((pause < 15 ? pause * 2 : 30))
	done
}

# -- whom to trust -------------------------------------------------------------------------------------------------

trust_server() {
	trust=system
	if [ -n "$CATTLE_CA_CHECKSUM" ]; then
		patiently "asking $server for its CA" get_authority
		trust=$work/ca.pem
	else
		say "no CA checksum is given: $server must have a certificate that this machine trusts already"
	fi
	patiently "asking $server for its health" get_health
}

get_authority() {
	trust=none
	get "$server/cacerts" "$work/ca.pem" 60 || return 1
	sum=$(sha256 "$work/ca.pem")
	[ "$sum" = "$CATTLE_CA_CHECKSUM" ] || fail "$server has another CA than expected, so it is not trusted: the" \
		"checksum should be $CATTLE_CA_CHECKSUM and is $sum. Check --server and --ca-checksum, and who is in between"
	note_clock
}

get_health() {
	if get "$server/healthz" "$work/healthz" 60; then
		return 0
	fi
	if [ "$untrusted" = yes ]; then
		[ "$trust" = system ] && hint="add --ca-checksum, as in the server's own registration command" ||
			hint="its certificate must be good for the name in the URL, and the clocks must agree"
		fail "the certificate of $server is not trusted: $why. $hint${skew:+. $skew}"
	fi
	return 1
}

# Certificates are not valid to a clock that is far off: then the errors to come say so.
note_clock() {
	skew=
	theirs=$(sed -n 's/^[Dd]ate: *//p' "$work/headers" | tr -d '\r' | tail -n 1)
	[ -n "$theirs" ] && theirs=$(date -d "$theirs" +%s 2>/dev/null) || return 0
	ours=$(date +%s)
	off=$((ours - theirs))
	[ "$off" -gt 300 ] && skew="This machine's clock is $off seconds ahead of the server's" || :
	[ "$off" -lt -300 ] && skew="This machine's clock is $((-off)) seconds behind the server's" || :
	[ -z "$skew" ] || say "$skew"
}

# -- where this machine is -----------------------------------------------------------------------------------------

resolve_addresses() {
	[ -z "${CATTLE_ADDRESS:-}" ] || CATTLE_ADDRESS=$(address_of "$CATTLE_ADDRESS")
	[ -z "${CATTLE_INTERNAL_ADDRESS:-}" ] || CATTLE_INTERNAL_ADDRESS=$(address_of "$CATTLE_INTERNAL_ADDRESS")
}

address_of() {
	here=http://169.254.169.254
	azure="$here/metadata/instance/network/interface/0/ipv4/ipAddress/0"
	google=http://metadata.google.internal/computeMetadata/v1/instance/network-interfaces/0
	case $1 in
	awslocal) ask "$here/latest/meta-data/local-ipv4" "$(amazon_token)" ;;
	awspublic) ask "$here/latest/meta-data/public-ipv4" "$(amazon_token)" ;;
	doprivate) ask "$here/metadata/v1/interfaces/private/0/ipv4/address" ;;
	dopublic) ask "$here/metadata/v1/interfaces/public/0/ipv4/address" ;;
	azprivate) ask "$azure/privateIpAddress?api-version=2017-08-01&format=text" "Metadata: true" ;;
	azpublic) ask "$azure/publicIpAddress?api-version=2017-08-01&format=text" "Metadata: true" ;;
	gceinternal) ask "$google/ip" "Metadata-Flavor: Google" ;;
	gceexternal) ask "$google/access-configs/0/external-ip" "Metadata-Flavor: Google" ;;
	packetlocal) ask https://metadata.packet.net/2009-04-04/meta-data/local-ipv4 ;;
	packetpublic) ask https://metadata.packet.net/2009-04-04/meta-data/public-ipv4 ;;
	ipify) ask https://api.ipify.org ;;
	*)
		if [ -e "/sys/class/net/$1" ]; then
			found=$(ip -o addr show dev "$1" scope global 2>/dev/null | awk '{print $4; exit}')
			[ -n "$found" ] || fail "the interface $1 has no address"
			printf '%s\n' "${found%/*}"
		else
			printf '%s\n' "$1"
		fi
		;;
	esac
}

amazon_token() {
	if [ -n "$curl" ]; then
		got=$("$curl" --silent --max-time 5 --request PUT --header 'X-aws-ec2-metadata-token-ttl-seconds: 60' \
			http://169.254.169.254/latest/api/token || :)
		[ -z "$got" ] || printf 'X-aws-ec2-metadata-token: %s\n' "$got"
	fi
}

ask() {
	trust=system
	printf '%s\n' "${2:-Accept: text/plain}" >"$work/metadata"
	get "$1" "$work/address" 10 "$work/metadata" || fail "$1 does not tell this machine's address: $why"
	cat "$work/address"
}

# -- our agent -----------------------------------------------------------------------------------------------------

choose_agent() {
	case ${REMUDA_AGENT:-} in
	upstream) agent=upstream ;;
	'' | remuda)
		agent=remuda
		[ -z "$python" ] || return 0
		[ -n "${REMUDA_AGENT:-}" ] || patiently "looking for a system-agent at $server" look_for_binary
		if [ -n "${has_binary:-}" ]; then
			say "no Python 3.9 or newer is here: installing Rancher's system-agent, which $server has"
			agent=upstream
			return 0
		fi
		fail "the node agent needs Python 3.9 or newer, and this machine has none: install it (Debian and Ubuntu:" \
			"apt-get install python3; RHEL and SUSE: python39 or newer) and run this again. Or let the server have" \
			"Rancher's system-agent among its assets, which needs no Python"
		;;
	*) fail "REMUDA_AGENT is remuda or upstream, not $REMUDA_AGENT" ;;
	esac
}

install_ours() {
	patiently "downloading the agent from $server" get_zipapp
	CATTLE_SERVER=$server
	export CATTLE_SERVER CATTLE_CA_CHECKSUM CATTLE_REMOTE_ENABLED
	export_given CATTLE_TOKEN CATTLE_ROLE_NONE CATTLE_ROLE_ETCD CATTLE_ROLE_CONTROLPLANE CATTLE_ROLE_WORKER \
		CATTLE_NODE_NAME CATTLE_ADDRESS CATTLE_INTERNAL_ADDRESS CATTLE_LABELS CATTLE_TAINTS
	"$python" "$work/remuda-agent.pyz" install </dev/null
}

export_given() {
	for each; do
		eval "[ -z \"\${$each:-}\" ] || export $each"
	done
}

# The checksum above is of the day this script was made. A server that has been upgraded since tells the new one, over
# a connection that is trusted.
get_zipapp() {
	get "$server/assets/remuda-agent.pyz" "$work/remuda-agent.pyz" 300 || return 1
	sum=$(sha256 "$work/remuda-agent.pyz")
	[ "$sum" != "${REMUDA_AGENT_CHECKSUM:-}" ] || return 0
	get "$server/assets/remuda-agent.pyz.sha256" "$work/sum" 60 || return 1
	[ "$sum" = "$(cut -c 1-64 "$work/sum")" ] && return 0
	why="what came has another checksum than the server says"
	return 1
}

# -- Rancher's agent -----------------------------------------------------------------------------------------------

get_binary() {
	if [ "${CATTLE_AGENT_BINARY_LOCAL:-}" = true ]; then
		cp "${CATTLE_AGENT_BINARY_LOCAL_LOCATION:?}" "$work/binary"
		return 0
	fi
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	s390x) arch=s390x ;;
	arm*) arch=arm ;;
	*) fail "there is no system-agent for $(uname -m)" ;;
	esac
	base=${CATTLE_AGENT_BINARY_BASE_URL:-$server/assets}
	url=${CATTLE_AGENT_BINARY_URL:-$base/rancher-system-agent-$arch}
	# Whoever else it comes from is trusted as this machine trusts, not by our pin.
	pinned=$trust
	case $url in
	"$server"/*) ;;
	https://*) trust=system ;;
	*) fail "the system-agent is fetched over https only, not from $url" ;;
	esac
	got=0
	get "$url" "$work/binary" 300 || got=1
	trust=$pinned
	[ "$got" = 0 ] || return 1
	wanted=${CATTLE_AGENT_BINARY_CHECKSUM:-}
	if [ -z "$wanted" ] && [ "$url" = "$server/assets/rancher-system-agent-$arch" ]; then
		get "$url.sha256" "$work/sum" 60 || return 1
		wanted=$(cut -c 1-64 "$work/sum")
	fi
	if [ -n "$wanted" ] && [ "$(sha256 "$work/binary")" != "$wanted" ]; then
		why="what came has another checksum than $wanted"
		return 1
	fi
}

look_for_binary() {
	if get_binary; then
		has_binary=yes
		return 0
	fi
	[ "$status" = 404 ]
}

get_binary_or_end() {
	[ -z "${has_binary:-}" ] || return 0
	get_binary && return 0
	[ "$status" != 404 ] || fail "$server has no system-agent for this machine ($url): put it among its assets"
	return 1
}

install_upstream() {
	[ -z "${REMUDA_HOST_ROOT:-}" ] || fail "Rancher's system-agent needs a machine of its own; REMUDA_HOST_ROOT is set"
	command -v systemctl >/dev/null 2>&1 || fail "Rancher's system-agent needs systemd, which is not here"
	choose_directories
	patiently "downloading the system-agent" get_binary_or_end
	chmod 755 "$work/binary"
	patiently "downloading its uninstall script" get_uninstall
	write_config >"$work/config.yaml"
	if [ -n "${CATTLE_TOKEN:-}" ]; then
		find_id
		write_headers >"$work/connect"
		patiently "registering with $server" connect
		"$work/binary" validate-connection "$work/connection.json" >"$work/errors" 2>&1 ||
			fail "what $server gave to connect with does not work: $(one_line "$work/errors")"
	fi
	# From here on everything is at hand.
	mkdir -p "$config" "$var" "$var/interlock" "$prefix/bin"
	chmod 700 "$config" "$var" "$var/interlock"
	touch "$var/interlock/restart-pending"
	patiently "waiting for the plan that runs" no_plan_runs
	put "$work/config.yaml" "$config/config.yaml" 600
	[ -z "${CATTLE_TOKEN:-}" ] || put "$work/connection.json" "$var/rancher2_connection_info.json" 600
	put "$work/binary" "$prefix/bin/rancher-system-agent" 755
	put "$work/uninstall" "$prefix/bin/rancher-system-agent-uninstall.sh" 755
	write_environment >"$work/env"
	put "$work/env" /etc/systemd/system/rancher-system-agent.env 600
	write_unit >"$work/unit"
	put "$work/unit" /etc/systemd/system/rancher-system-agent.service 644
	systemctl daemon-reload
	systemctl enable rancher-system-agent >/dev/null 2>&1
	systemctl restart rancher-system-agent
	rm -f "$var/interlock/restart-pending"
	say "rancher-system-agent is installed and started"
}

choose_directories() {
	config=${CATTLE_AGENT_CONFIG_DIR:-/etc/rancher/agent}
	var=${CATTLE_AGENT_VAR_DIR:-/var/lib/rancher/agent}
	prefix=${CATTLE_AGENT_BIN_PREFIX:-/usr/local}
	if [ -x /usr/sbin/transactional-update ]; then
		var=${CATTLE_AGENT_VAR_DIR:-/etc/rancher/agent/var}
	fi
	if [ -z "${CATTLE_AGENT_BIN_PREFIX:-}" ] && ! { mkdir -p "$prefix/bin" && [ -w "$prefix/bin" ]; } 2>/dev/null; then
		prefix=/opt/rancher-system-agent
	fi
}

get_uninstall() {
	if [ "${CATTLE_AGENT_UNINSTALL_LOCAL:-}" = true ]; then
		cp "${CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION:?}" "$work/uninstall"
	else
		get "${CATTLE_AGENT_UNINSTALL_URL:-$server/assets/system-agent-uninstall.sh}" "$work/uninstall" 60 || return 1
	fi
	wanted=${CATTLE_AGENT_UNINSTALL_CHECKSUM:-}
	[ -z "$wanted" ] || [ "$(sha256 "$work/uninstall")" = "$wanted" ] ||
		fail "the uninstall script has another checksum than $wanted"
}

no_plan_runs() {
	[ -e "$var/interlock/applyinator-active" ] || return 0
	why="the agent is in the middle of one"
	return 1
}

put() {
	cp "$1" "$2.new"
	chmod "$3" "$2.new"
	mv -f "$2.new" "$2"
}

write_config() {
	cat <<END
workDirectory: $var/work
appliedPlanDirectory: $var/applied
remoteEnabled: $CATTLE_REMOTE_ENABLED
localEnabled: ${CATTLE_LOCAL_ENABLED:-false}
localPlanDirectory: $var/plans
preserveWorkDirectory: ${CATTLE_PRESERVE_WORKDIR:-false}
interlockDirectory: $var/interlock
END
	[ -z "${CATTLE_TOKEN:-}" ] || echo "connectionInfoFile: $var/rancher2_connection_info.json"
}

# What this machine calls itself, for life.
find_id() {
	mkdir -p "$config"
	chmod 700 "$config"
	: "${CATTLE_ID:=$(cat "$config/cattle-id" 2>/dev/null || :)}"
	if [ -z "$CATTLE_ID" ]; then
		dd if=/dev/urandom of="$work/random" bs=512 count=1 2>/dev/null
		CATTLE_ID=$(sha256 "$work/random" | cut -c 1-63)
	fi
	printf '%s\n' "$CATTLE_ID" >"$work/id"
	put "$work/id" "$config/cattle-id" 600
}

write_headers() {
	name=${CATTLE_NODE_NAME:-$(uname -n | tr '[:upper:]' '[:lower:]')}
	cat <<END
Authorization: Bearer $CATTLE_TOKEN
X-Cattle-Id: $CATTLE_ID
X-Cattle-Role-Etcd: ${CATTLE_ROLE_ETCD:-false}
X-Cattle-Role-Control-Plane: ${CATTLE_ROLE_CONTROLPLANE:-false}
X-Cattle-Role-Worker: ${CATTLE_ROLE_WORKER:-false}
X-Cattle-Node-Name: $name
X-Cattle-Address: ${CATTLE_ADDRESS:-}
X-Cattle-Internal-Address: ${CATTLE_INTERNAL_ADDRESS:-}
X-Cattle-Labels: ${CATTLE_LABELS:-}
X-Cattle-Taints: ${CATTLE_TAINTS:-}
END
}

# A refused token stays refused.
connect() {
	get "$server/v3/connect/agent" "$work/connection.json" 90 "$work/connect" && return 0
	case $status in
	400 | 401 | 403 | 409) fail "$server does not let this machine register: $why" ;;
	esac
	return 1
}

write_environment() {
	for each in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
		eval "value=\${$each:-}"
		[ -z "$value" ] || printf '%s=%s\n' "$each" "$value"
	done
	[ -z "${CATTLE_AGENT_FALLBACK_PATH:-}" ] || printf 'PATH=%s\n' "$PATH:$CATTLE_AGENT_FALLBACK_PATH"
}

write_unit() {
	cat <<END
[Unit]
Description=Rancher System Agent
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
Restart=always
RestartSec=5s
EnvironmentFile=-/etc/default/rancher-system-agent
EnvironmentFile=-/etc/sysconfig/rancher-system-agent
EnvironmentFile=-/etc/systemd/system/rancher-system-agent.env
Environment=CATTLE_LOGLEVEL=${CATTLE_AGENT_LOGLEVEL:-info}
Environment=CATTLE_AGENT_CONFIG=$config/config.yaml
Environment=CATTLE_AGENT_STRICT_VERIFY=$strict
ExecStart=$prefix/bin/rancher-system-agent sentinel

[Install]
WantedBy=multi-user.target
END
}

main "$@"
