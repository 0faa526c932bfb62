# RKE2 from artefacts: the release's tar file, which brings its units and scripts, and perhaps an archive of images.

install_files() {
	prefix=/usr/local
	writable "$ROOT$prefix/lib/systemd/system" || prefix=/opt/rke2
	fetch rke2.tar.gz
	marker=$ROOT$prefix/share/rke2/remuda-installed
	if [ "$(cat "$marker" 2>/dev/null || true)" != "$fetched" ]; then
		mkdir -p "$ROOT$prefix"
		tar -xzf "$fetched" -C "$ROOT$prefix"
		if [ "$prefix" != /usr/local ]; then
			sed -i "s|/usr/local|$prefix|g" "$ROOT$prefix"/lib/systemd/system/rke2-*.service
			for unit in "$ROOT$prefix"/lib/systemd/system/rke2-*.service; do
				place "$unit" "$UNIT_DIR/${unit##*/}" 644
			done
		fi
		printf '%s\n' "$fetched" | write "$marker" 644
	fi
	if offered images.tar.zst; then
		fetch images.tar.zst
		place "$fetched" "$DATA_DIR/agent/images/remuda-images.tar.zst" 644
	fi
	host_tool environment RKE2_ CONTAINERD_ | write "$ROOT$prefix/lib/systemd/system/$UNIT.env" 600
}
