#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Boots a real arm64 Linux, with our static programs in its initramfs, in an
# emulated machine. Kernel and busybox are Debian's; `fetch` gets them by the
# machine's own apt sources, and nothing else here touches the network.
#
#	boot_kernel.sh fetch
#	boot_kernel.sh missing
#	boot_kernel.sh boot CPU SCRIPT PROGRAMS [QEMU-OPTION...]
#
# missing says what a boot lacks, or nothing. boot runs SCRIPT by busybox sh,
# the programs of folder PROGRAMS in its current folder, and prints the
# console. KERNEL_CACHE is where kernel and busybox are kept, else
# deps/kernel of the tree.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cache=${KERNEL_CACHE:-$top/deps/kernel}
qemu=${QEMU_SYSTEM_AARCH64:-qemu-system-aarch64}

# The system's own apt state is left alone: no foreign architecture is added.
private_apt() {
	command=$1
	shift
	"$command" -q -o Dir::State="$work" -o Dir::State::Lists="$work/lists" \
		-o Dir::State::status="$work/status" \
		-o Dir::Cache="$work/cache" \
		-o APT::Architecture=arm64 -o APT::Architectures=arm64 \
		-o APT::Update::Post-Invoke-Success::= \
		-o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}

fetch() {
	if [ -s "$cache/Image" ] && [ -s "$cache/busybox" ]; then
		return
	fi
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$cache" "$work/lists/partial" "$work/cache/archives/partial"
	: >"$work/status"
	private_apt apt-get update >&2
	kernel=$(private_apt apt-cache depends linux-image-cloud-arm64 |
		sed -n 's/^ *Depends: \(linux-image-.*\)$/\1/p')
	if [ -z "$kernel" ]; then
		echo "apt knows no package linux-image-cloud-arm64" >&2
		exit 1
	fi
	(cd "$work" && private_apt apt-get download "$kernel" busybox-static >&2)
	for package in "$work"/*.deb; do
		dpkg -x "$package" "$work/root"
	done
	cp "$work"/root/boot/vmlinuz-* "$cache/Image.part"
	cp "$work/root/bin/busybox" "$cache/busybox"
	echo "$kernel" >"$cache/version"
	mv "$cache/Image.part" "$cache/Image"
}

missing() {
	for tool in "$qemu" cpio; do
		if ! command -v "$tool" >/dev/null; then
			echo "there is no $tool here"
			return
		fi
	done
	if [ ! -s "$cache/Image" ] || [ ! -s "$cache/busybox" ]; then
		echo "there is no arm64 kernel here (tests/boot_kernel.sh fetch)"
	fi
}

# init: the file systems that the programs look at, then the script.
write_init() {
	cat <<'EOF'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp
mount -t tmpfs tmpfs /dev/shm
cd /programs
sh /script 2>&1
poweroff -f
EOF
}

boot() {
	cpu=$1 script=$2 programs=$3
	shift 3
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/root/bin" "$work/root/proc" "$work/root/sys" \
		"$work/root/dev" "$work/root/programs"
	cp "$cache/busybox" "$work/root/bin/busybox"
	cp "$script" "$work/root/script"
	find "$programs" -maxdepth 1 -type f -perm -u+x \
		-exec cp {} "$work/root/programs" \;
	write_init >"$work/root/init"
	chmod 755 "$work/root/init" "$work/root/bin/busybox"
	(cd "$work/root" && find . | cpio --quiet -o -H newc) \
		>"$work/initramfs"
	timeout "${BOOT_TIMEOUT:-120}" "$qemu" -M virt -cpu "$cpu" -smp 4 \
		-m 1024 -kernel "$cache/Image" -initrd "$work/initramfs" \
		-append "console=ttyAMA0 quiet panic=-1 hugepages=40" \
		-no-reboot -nographic -nic none "$@" </dev/null
}

case ${1-} in
fetch) fetch ;;
missing) missing ;;
boot)
	shift
	boot "$@"
	;;
*)
	echo "usage: $0 fetch | missing | boot CPU SCRIPT PROGRAMS" >&2
	exit 2
	;;
esac
