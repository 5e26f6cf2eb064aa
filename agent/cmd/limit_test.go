package main

import (
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

func (b *bed) limited(t testing.TB, limits agent.Limits, argv ...string) result {
	t.Helper()
	r, err := b.start(t, agent.Start{Argv: argv, Env: testEnv, Limits: &limits})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A command has its limits from its first instruction.
func TestLimitsHold(t *testing.T) {
	b := newBed(t, 0)
	r := b.limited(t, agent.Limits{CPU: 7 * time.Second, Processes: 50, OpenFiles: 33, FileSize: 12345}, "cat", "/proc/self/limits")
	for _, want := range []string{"Max cpu time 8 9 seconds", "Max open files 33 33 files", "Max file size 12345 12345 bytes", "Max processes 51 51 processes"} {
		if !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), want) {
			t.Errorf("no %q in\n%s%s", want, r.stdout, r.stderr)
		}
	}
	r = b.limited(t, agent.Limits{OpenFiles: 33}, "sh", "-c", `ls /proc/self/fd | tr '\n' ' '; tr '\0' '\n' </proc/self/environ; grep -e ^Uid -e CapBnd -e NoNewPrivs -e Seccomp: /proc/self/status; exit 3`)
	if want := "0 1 2 3 " + strings.Join(testEnv, "\n") + "\n"; !strings.HasPrefix(r.stdout, want) || r.exit.Code != 3 ||
		!strings.Contains(r.stdout, "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n") {
		t.Errorf("%+v", r)
	}
	// A command without limits is unaffected.
	if r := b.run(t, "sh", "-c", "ulimit -t; ulimit -f"); r.stdout != "unlimited\nunlimited\n" {
		t.Errorf("%+v", r)
	}
}

func TestLimitedStartErrors(t *testing.T) {
	b := newBed(t, 0)
	b.sh(t, "echo '#!/none' >script; printf '\\0\\1' >binary; chmod +x script binary")
	for argv, code := range map[string]agent.ErrorCode{"./script": agent.ErrNotFound, "./binary": agent.ErrWrongType, "none": agent.ErrNotFound} {
		_, err := b.start(t, agent.Start{Argv: []string{argv}, Env: testEnv, Limits: &agent.Limits{OpenFiles: 20}})
		checkError(t, argv, err, agent.Error{Code: code, Field: "argv"})
	}
	if left := b.left(t); left != "" {
		t.Errorf("left: got %q, want \"\"", left)
	}
}

// The test checks which processes count. Serve's TestWatch tests the time, with a fake clock.
func TestCPULimit(t *testing.T) {
	b := newBed(t, 0)
	for name, script := range map[string]string{
		"leader":   "while :; do :; done",
		"ignoring": "trap '' XCPU; while :; do :; done",
		"children": "for i in 1 2 3 4; do (while :; do :; done) & done; wait",
		"in turn":  "while :; do sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'; done",
		"setsid":   "(setsid sh -c 'while :; do :; done' &); sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			r := b.limited(t, agent.Limits{CPU: time.Second}, "sh", "-c", script)
			if used := r.exit.User + r.exit.System; r.exit.Cause != agent.CauseCPULimit || used < 980*time.Millisecond {
				t.Errorf("%+v after %v", r.exit, used)
			}
			if left := b.left(t); left != "" {
				t.Errorf("left: got %q, want \"\"", left)
			}
		})
	}
	if r := b.limited(t, agent.Limits{CPU: time.Second}, "sleep", "1.2"); r.exit.Cause != agent.CauseSelf || r.exit.Code != 0 {
		t.Errorf("sleeping took processor time: %+v", r.exit)
	}
}

func TestFileLimits(t *testing.T) {
	b := newBed(t, 0)
	r := b.limited(t, agent.Limits{OpenFiles: 16}, "python3", "-c", "f = []\ntry:\n  while True: f.append(open('/dev/null'))\nexcept OSError as e: print(e.errno, f[-1].fileno())")
	if r.stdout != "24 15\n" {
		t.Errorf("open files: %+v", r)
	}
	if r := b.limited(t, agent.Limits{FileSize: 100_000}, "dd", "if=/dev/zero", "of=big", "bs=1000", "count=200"); r.exit.Signal != "SIGXFSZ" {
		t.Errorf("file size: %+v", r.exit)
	}
	if info, _, err := b.read(t, "big"); err != nil || info.Size != 100_000 {
		t.Errorf("%d bytes, %v", info.Size, err)
	}
	b.put(t, agent.Write{Path: "later", Size: 200_000}, strings.Repeat("x", 200_000)) // the agent has no limit
}

// A command forks below a limit of the whole runner, which was read back.
func TestProcessLimit(t *testing.T) {
	b := newBed(t, 96)
	r := b.limited(t, agent.Limits{Processes: 8}, "sh", "-c", "ulimit -p; for i in 1 2 3 4 5 6; do sleep 0.1 & done; wait; echo fine")
	if r.stdout != "9\nfine\n" || r.exit.Code != 0 || r.exit.Cause != agent.CauseSelf {
		t.Fatalf("within its limit: %+v", r)
	}
	other, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the other's processes run", func() bool { return strings.Count(b.left(t), "sleep 1000") == 8 })
	if r = b.limited(t, agent.Limits{Processes: 8}, "perl", "-e", "while (1) { fork }"); r.exit.Cause != agent.CauseProcessLimit {
		t.Errorf("a fork bomb: %+v", r.exit)
	}
	if left := b.left(t); strings.Count(left, "sleep 1000") != 8 || strings.Contains(left, "perl") {
		t.Errorf("left: %q", left)
	}
	_ = other.Kill(0)
	b.finish(t, other)
}

// A privileged command is root in the runner and has no rights on the machine.
func TestPrivilegedIsRootOfTheRunnerOnly(t *testing.T) {
	b := newBed(t, 96)
	root := func(script string) result {
		t.Helper()
		r, err := b.start(t, agent.Start{Argv: []string{"sh", "-c", script}, Env: testEnv, Privileged: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// CHOWN, DAC_OVERRIDE, FOWNER, KILL.
	status := root("cat /proc/self/status").stdout
	for _, want := range []string{"Uid:\t0\t0\t0\t0", "CapEff:\t000000000000002b", "CapPrm:\t000000000000002b", "CapBnd:\t000000000000002b", "CapInh:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	b.sh(t, "echo mine >secret; chmod 600 secret; (setsid sleep 1009 &)")
	if r := root("cat secret; chown 1000:1000 /tmp; chown 0:0 secret; touch /tmp/x; stat -c %u:%g /tmp secret; ls /proc/self/fd | tr '\\n' ' '"); r.stdout != "mine\n1000:1000\n0:0\n0 1 2 3 " {
		t.Errorf("%+v", r)
	}
	for _, script := range []string{
		"mount -t tmpfs x /tmp", "mount --bind /tmp /workspace", "umount /usr", "mount -o remount,rw /", "chroot /tmp", "unshare -m true", "unshare -U true",
		"mknod /tmp/d b 8 0", "mknod /tmp/d c 1 1", "touch /usr/x", "touch /etc/passwd", "chown 1000 /usr/bin/env", "hostname x", "date -s 2000-01-01",
		"cat /proc/1/environ", "cat /proc/1/mem", "readlink /proc/1/fd/3", "cat /proc/1/fd/3", "ls /proc/1/root/", "ls /proc/1/cwd/", "echo 1 >/proc/sys/kernel/panic", "echo b >/proc/sysrq-trigger",
		"perl -e 'exit(syscall(116, 0, 0) == 0 ? 0 : 1)'",            // setgroups would leave its execution
		"perl -e '$( = $) = \"60001 60001\"; exit($) !~ /^60001 /)'", // so would setgid
		"perl -e 'exit !(syscall(117, 1000, 1000, 1000) == 0)'",      // setresuid
		"kill -9 1; test ! -e /proc/1", "nsenter -t 1 -m true",
	} {
		if r := root(script); r.exit.Code == 0 {
			t.Errorf("root can %s: %+v", script, r)
		}
	}
	s, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", "id -u; (setsid sleep 1010 &); sleep 1011"}, Env: testEnv, Privileged: true,
		Limits: &agent.Limits{OpenFiles: 40}})
	if err != nil {
		t.Fatal(err)
	}
	b.awaitSleeps(t, "1010", "1011")
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	if r := b.finish(t, s); r.exit.Cause != agent.CauseKill || r.stdout != "0\n" {
		t.Errorf("%+v", r)
	}
	if left := b.left(t); left != "" {
		t.Errorf("left: got %q, want \"\"", left)
	}
	if r := b.sh(t, "grep -c 'CapBnd:.0000000000000000' /proc/self/status"); r.stdout != "1\n" {
		t.Errorf("an ordinary command: %+v", r)
	}
}
