# RKE2 from artefacts: the release's tar file, which brings its units and scripts, and perhaps archives of images.

install_files() {
	# As the release's own install.sh chooses it: what is mounted at /usr/local may be another after the next boot.
	prefix=/usr/local
	if mountpoint -q "$ROOT$prefix" 2>/dev/null || ! writable "$ROOT$prefix/lib/systemd/system"; then
		prefix=/opt/rke2
	fi
	fetch rke2.tar.gz
	marker=$ROOT$prefix/share/rke2/remuda-installed
	if [ "$(cat "$marker" 2>/dev/null || true)" != "$fetched" ]; then
		mkdir -p "$ROOT$prefix"
		# The release's env files set HOME, and administrators edit them: those that are there stay.
		set --
		for name in rke2-server.env rke2-agent.env; do
			[ ! -e "$ROOT$prefix/lib/systemd/system/$name" ] || set -- "$@" "--exclude=$name"
		done
		tar -xzf "$fetched" -C "$ROOT$prefix" "$@"
		if [ "$prefix" != /usr/local ]; then
			sed -i "s|/usr/local|$prefix|g" "$ROOT$prefix"/lib/systemd/system/rke2-*.service "$ROOT$prefix/bin/rke2-uninstall.sh"
			for unit in "$ROOT$prefix"/lib/systemd/system/rke2-*.service; do
				place "$unit" "$UNIT_DIR/${unit##*/}" 644
			done
		fi
		printf '%s\n' "$fetched" | write "$marker" 644
	fi
	place_images
	host_tool environment RKE2_ CONTAINERD_ | write "$CONFIG_DIR/$UNIT.env" 600
	printf '[Service]\nEnvironmentFile=-%s\n' "$REMUDA_CONFIG_DIR/$UNIT.env" |
		write "$UNIT_DIR/$UNIT.service.d/50-remuda.conf" 644
	relabel "$ROOT$prefix"/bin/rke2* "$ROOT$prefix"/lib/systemd/system/rke2* "$ROOT$prefix/share/rke2" "$UNIT_DIR"/rke2*
	trust_programs
	apply_sysctls "$prefix"
}

# trust_programs: lets containers run where fapolicyd allows known programs only, as the release's install.sh does.
trust_programs() {
	rules=$ROOT/etc/fapolicyd/rules.d/80-rke2.rules
	[ -d "${rules%/*}" ] || return 0
	before=$(cat "$rules" 2>/dev/null || true)
	for trusted in /var/lib/rancher/ "$REMUDA_DATA_DIR/" /opt/cni/ /run/k3s/ /var/lib/kubelet/; do
		echo "allow perm=any all : dir=$trusted"
	done | write "$rules" 644
	if [ "$(cat "$rules")" != "$before" ] && systemctl is-active --quiet fapolicyd.service; then
		fagenrules --load
		systemctl restart fapolicyd.service
	fi
}
