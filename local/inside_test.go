package local

import (
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/need"
)

// All of these tests use one runner, and leave nothing in it.
func TestIsolationInsideARunner(t *testing.T) {
	b := running(t)
	began := time.Now()
	id := b.begin(hostEnvironment())
	host := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}

	t.Run("users are the runner's own", func(t *testing.T) {
		first := spec.FirstUID + b.slotOf(id)*spec.UIDs
		b.expect(id, "cat /proc/self/uid_map | tr -s ' '", fmt.Sprintf("0 %d 65536", first))
		b.expect(id, "cat /proc/self/gid_map | tr -s ' '", fmt.Sprintf("0 %d 65536", first))
		b.expect(id, "id -u; id -g; whoami; echo ~; pwd", "1000\n1000\nrunner\n/tmp/home\n/workspace")
		status := host(fmt.Sprintf("/proc/%d/status", b.agentOf(id)))
		if !strings.Contains(status, fmt.Sprintf("Uid:\t%d\t%d", first, first)) {
			t.Errorf("the agent's user isn't %d:\n%s", first, status)
		}
	})
	t.Run("nothing of the machine", func(t *testing.T) {
		b.expect(id, "hostname; cat /etc/hostname", "runner\nrunner")
		b.expect(id, "ls -A /root /home /run /mnt /opt; ls -d /etc/shadow /etc/ssh /var/log /work 2>/dev/null | wc -l",
			"/home:\n\n/mnt:\n\n/opt:\n\n/root:\n\n/run:\n0")
		b.expect(id, "cat /proc/cmdline /proc/sys/kernel/random/boot_id /proc/partitions", "")
		b.expect(id, "cut -d: -f1 /etc/passwd | tr '\\n' ' '", "root runner nobody")
		b.expect(id, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo")
		up, _ := b.sh(id, "cut -d. -f1 /proc/uptime")
		if seconds, err := strconv.Atoi(strings.TrimSpace(up)); err != nil || time.Duration(seconds-1)*time.Second > time.Since(began) { // it starts at a whole second of the machine's clock
			t.Errorf("a runner that was made %v ago says that it is up for %q s", time.Since(began), up)
		}
		b.expect(id, "ls /proc | grep -c '^[0-9]' | awk '{print ($1 < 9)}'", "1") // its own processes only
		b.expect(id, "grep -v -x '[^/]*:/\\(run/x0\\)\\?' /proc/self/cgroup | wc -l", "0")
	})
	t.Run("no power", func(t *testing.T) {
		b.expect(id, "grep -E '^Cap(Prm|Eff)' /proc/self/status | cut -f2 | sort -u", "0000000000000000")
		b.expect(id, "grep NoNewPrivs /proc/self/status | cut -f2", "1")
		b.expect(id, "for f in / /usr /etc /etc/ssl/certs /dev /proc/sys/kernel/hostname /.rockpool/agent; do test -w $f && echo $f; done; true", "")
		b.expect(id, "unshare -U true 2>/dev/null || echo refused; mount -t tmpfs x /tmp 2>/dev/null || echo refused; kill -9 1 2>/dev/null || echo refused", "refused\nrefused\nrefused")
		b.expect(id, "ls /dev | grep -v -x core | tr '\\n' ' '", "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero")
		b.expect(id, "awk '$2 == \"/usr\"' /proc/mounts | grep -c 'ro,nosuid,nodev'", "1")
	})
	t.Run("the root is read-only for its root user too", func(t *testing.T) {
		// The agent has that user's id, so its mounts show them.
		for line := range strings.Lines(host(fmt.Sprintf("/proc/%d/mountinfo", b.agentOf(id)))) {
			f := strings.Fields(line)
			at, options := f[4], ","+f[5]+","
			writable := strings.Contains(options, ",rw,")
			switch at {
			case "/workspace", "/tmp", "/dev/shm":
				if !strings.Contains(options, ",nosuid,") || !strings.Contains(options, ",nodev,") {
					t.Errorf("%s is mounted %s", at, options)
				}
			case "/dev", "/dev/pts", "/proc":
			default:
				if writable && !strings.HasPrefix(at, "/dev/") && !strings.HasPrefix(at, "/proc/") {
					t.Errorf("%s is writable", at)
				}
			}
		}
	})
	t.Run("languages", func(t *testing.T) {
		b.expect(id, "python3 -c 'import ssl, json; print(6*7)'", "42")
		b.expect(id, `printf '#include <stdio.h>\nint main(void){puts("42");}' > a.c && cc -o a a.c && ./a && rm a a.c`, "42")
		b.expect(id, "ls /etc/ssl/certs/*.pem /etc/ssl/certs/*.crt 2>/dev/null | head -1 | wc -l", "1")
	})
	t.Run("node", func(t *testing.T) {
		if path, err := exec.LookPath("node"); err != nil || !strings.HasPrefix(path, "/usr/") {
			need.Lacks(t, "the machine has no node that could be seen inside")
		}
		b.expect(id, "node -e 'console.log(6*7)'", "42")
	})
	t.Run("a machine of its size", func(t *testing.T) {
		b.expect(id, "grep MemTotal /proc/meminfo | tr -s ' '; ulimit -s", "MemTotal: 131072 kB\n122880")
		cpus := (2000 + b.host.Machine.CoreMHz - 1) / b.host.Machine.CoreMHz
		cpus = min(cpus, goruntime.NumCPU())
		b.expect(id, "grep -c ^processor /proc/cpuinfo; ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l; getconf _NPROCESSORS_ONLN", fmt.Sprintf("%d\n%[1]d\n%[1]d", cpus))
		// Runtimes of languages read the limits of the group that /proc/self/cgroup names.
		b.expect(id, `own=$(sed -n 's/^[0-9]*:memory://p; s/^0:://p' /proc/self/cgroup | head -1)
			for f in /sys/fs/cgroup/memory$own/memory.limit_in_bytes /sys/fs/cgroup$own/memory.max; do [ ! -e $f ] || cat $f; done`, fmt.Sprint(128<<20))
		b.expect(id, `own=$(sed -n 's/^[0-9]*:cpu[a-z,]*://p; s/^0:://p' /proc/self/cgroup | tail -1)
			for f in /sys/fs/cgroup/cpu$own/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup$own/cpu.max; do [ ! -e $f ] || { cut -d' ' -f1 $f; break; }; done`,
			fmt.Sprint(spec.Commands(spec.Resources{CPUMHz: 2000}, b.host.Machine).CPUQuota))
		b.expect(id, "find /sys/fs/cgroup -maxdepth 4 -name cgroup.procs -o -name tasks | while read f; do { echo 0 >$f; } 2>/dev/null && echo $f; done; mkdir /sys/fs/cgroup/x 2>/dev/null; touch /sys/x 2>/dev/null; echo tried", "tried")
	})
	t.Run("room is capped", func(t *testing.T) {
		for dir, mib := range map[string]int{"/workspace": 16, "/tmp": 32, "/dev/shm": 64} {
			got, exit := b.sh(id, "head -c 70M /dev/zero > "+dir+"/big; stat -c %s "+dir+"/big; rm "+dir+"/big")
			if !strings.Contains(got, "No space left") || !strings.Contains(got, fmt.Sprint(mib<<20)) || exit.Code != 0 {
				t.Errorf("%s: %q, exit %d", dir, got, exit.Code)
			}
		}
		b.expect(id, "stat -c '%a %U' /workspace /tmp /dev/shm", "755 runner\n1777 root\n1777 root")
	})
}
