package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// left returns the commands that run, without the one that lists them.
func (b *bed) left(t testing.TB) string {
	t.Helper()
	return b.sh(t, `for p in /proc/[0-9]*; do case $p in /proc/1|/proc/$$) ;; *) tr '\0' ' ' <$p/cmdline; echo;; esac; done 2>/dev/null | grep -v -e '^tr ' -e '^grep ' -e '^sh -c for' -e '^$'`).stdout
}

// sleeps reports whether a sleep of that many seconds runs, not only the shell whose script
// contains it.
func sleeps(left, seconds string) bool { return strings.Contains("\n"+left, "\nsleep "+seconds) }

func (b *bed) awaitSleeps(t testing.TB, all ...string) {
	t.Helper()
	wait.For(t, fmt.Sprintf("sleeps of %s run", all), func() bool {
		left := b.left(t)
		return !slices.ContainsFunc(all, func(seconds string) bool { return !sleeps(left, seconds) })
	})
}

// A time limit ends all processes. Serve's TestTimeLimit tests the time, with a fake clock.
func TestTimeLimit(t *testing.T) {
	b := newBed(t, 0)
	r, err := b.start(t, agent.Start{
		Argv:      []string{"sh", "-c", "setsid sleep 1001 & (setsid sh -c 'sleep 1002 & sleep 1003' &) ; while echo on; do sleep 0.1; done"},
		Env:       testEnv,
		TimeLimit: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.exit.Cause != agent.CauseTimeLimit || r.exit.Signal != "SIGKILL" || r.exit.Wall < time.Second {
		t.Errorf("%+v", r)
	}
	if left := b.left(t); left != "" {
		t.Errorf("left: got %q, want \"\"", left)
	}
}

// No client is connected between the start and the end.
func TestTimeLimitWithoutAClient(t *testing.T) {
	b := newBed(t, 0)
	s, err := b.session(t, agent.Start{ID: "alone", Argv: []string{"sleep", "1000"}, Env: testEnv, TimeLimit: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	wait.For(t, "it ends", func() bool { return b.left(t) == "" })
	if s, err = agent.AttachExecution(t.Context(), b.dial(t), agent.Attach{ID: "alone"}); err != nil {
		t.Fatal(err)
	}
	if r := b.finish(t, s); r.exit.Cause != agent.CauseTimeLimit || r.exit.Wall < 200*time.Millisecond {
		t.Errorf("got %+v", r)
	}
}

// endless is a grace or a limit that must not be reached: the test would hang.
const endless = time.Hour

func TestKill(t *testing.T) {
	b := newBed(t, 0)
	for _, test := range []struct {
		name, script string
		grace        time.Duration
		code         int
		signal       string
		stdout       string
	}{
		{"at once", "trap 'echo no' TERM; echo on; sleep 1000 & wait", 0, 0, "SIGKILL", "on\n"},
		{"handled", "trap 'echo bye; exit 3' TERM; echo on; sleep 1000 & wait", endless, 3, "", "on\nbye\n"},
		{"not handled", "echo on; exec sleep 1000", endless, 0, "SIGTERM", "on\n"},
		{"ignored", "trap '' TERM; echo on; sleep 1000", 200 * time.Millisecond, 0, "SIGKILL", "on\n"},
		{"stopped", "echo on; kill -STOP $$; sleep 1000", endless, 0, "SIGTERM", "on\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", test.script}, Env: testEnv})
			if err != nil {
				t.Fatal(err)
			}
			waitForOutput(t, s)
			begin := time.Now()
			if err := s.Kill(test.grace); err != nil {
				t.Fatal(err)
			}
			r := b.finish(t, s)
			if r.exit.Cause != agent.CauseKill || r.exit.Code != test.code || r.exit.Signal != test.signal || "on\n"+r.stdout != test.stdout {
				t.Errorf("got %+v", r)
			}
			// A program that ignores SIGTERM gets its whole grace. No other program waits for its end.
			if took := time.Since(begin); test.grace != endless && took < test.grace {
				t.Errorf("killed after %v, and its grace is %v", took, test.grace)
			}
			if left := b.left(t); left != "" {
				t.Errorf("left: got %q, want \"\"", left)
			}
		})
	}
}

// One of two executions, whose processes mix, is killed.
func TestKillSparesOtherExecutions(t *testing.T) {
	b := newBed(t, 0)
	var sessions []*agent.Session
	for i := range 2 {
		s, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", fmt.Sprintf("(setsid sleep 100%d &); sleep 200%d", i, i)}, Env: testEnv})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	b.awaitSleeps(t, "1000", "1001", "2000", "2001")
	if err := sessions[0].Kill(0); err != nil {
		t.Fatal(err)
	}
	b.finish(t, sessions[0])
	if left := b.left(t); strings.Contains(left, "000") || !sleeps(left, "1001") || !sleeps(left, "2001") {
		t.Errorf("left: %q", left)
	}
	_ = sessions[1].Kill(0)
	b.finish(t, sessions[1])
}

// No process outlives its command. Serve's TestOutputsAreReadFor100msAfterTheEnd tests, with a fake
// clock, how long its output is read.
func TestNoProcessOutlivesItsCommand(t *testing.T) {
	b := newBed(t, 0)
	for _, test := range []struct{ name, script, want string }{
		{"holds stdout", "sleep 1000 & echo on", "on\n"},
		{"runs on", "(while :; do echo -n; done) & echo on", "on\n"},
		{"holds nothing", "sleep 1000 >/dev/null 2>&1 & echo on", "on\n"},
		{"all of a pipe", "head -c 60000 /dev/zero | tr '\\0' x; sleep 1000 & exit 7", strings.Repeat("x", 60000)},
	} {
		r := b.sh(t, test.script)
		if r.stdout != test.want || r.exit.Cause != agent.CauseSelf {
			t.Errorf("%s: printed %d bytes: %.30q; %+v", test.name, len(r.stdout), r.stdout, r.exit)
		}
		if left := b.left(t); left != "" {
			t.Errorf("%s: left %q, want \"\"", test.name, left)
		}
	}
}

func TestOutputLimit(t *testing.T) {
	b := newBed(t, 0)
	for _, test := range []struct {
		script string
		limit  int64
		bytes  int
		cause  agent.Cause
	}{
		{"yes", 100_000, 100_000, agent.CauseOutputLimit},
		{"printf 12345", 5, 5, agent.CauseSelf},
		{"printf 123456", 5, 5, agent.CauseOutputLimit},
		{"yes >&2 & yes", 1 << 20, 1 << 20, agent.CauseOutputLimit},
	} {
		r, err := b.start(t, agent.Start{Argv: []string{"sh", "-c", test.script}, Env: testEnv, OutputLimit: test.limit})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.stdout) + len(r.stderr); n != test.bytes || r.exit.Cause != test.cause || r.exit.Output != int64(n) {
			t.Errorf("%s: %d bytes, exit %+v", test.script, n, r.exit)
		}
	}
}

func TestUsage(t *testing.T) {
	b := newBed(t, 0)
	// It prints its own time, after all that takes any.
	spin := `perl -e 'do { for (1..10000) {} ; @t = times } while $t[0] + $t[1] < 0.5; $x = "x" x 30_000_000; @t = times; print $t[0] + $t[1]'`
	for _, script := range []string{
		spin, // the leader
		"sh -c \"" + strings.NewReplacer(`$`, `\$`, `"`, `\"`).Replace(spin) + "\"; true", // waited for
		"mkfifo end; (setsid sh -c 'exec >end; \"$@\"' sh " + spin + " &); cat end",       // an orphan
	} {
		r := b.sh(t, script)
		own, err := strconv.ParseFloat(r.stdout, 64)
		if err != nil {
			t.Fatalf("%s: %+v", script, r)
		}
		// Its usage is counted once, in addition to that of shells and their exits.
		used := (r.exit.User + r.exit.System).Seconds()
		if used < own-0.03 || used > 1.8*own || r.exit.PeakMemory < 28<<20 || r.exit.PeakMemory > 200<<20 {
			t.Errorf("%s: %.3f s, by its own clock %.3f s: %+v %s", script, used, own, r.exit, r.stderr)
		}
	}
}

// The runner has a limit of processes, which was read back.
func TestForkBomb(t *testing.T) {
	t.Run("without groups", func(t *testing.T) {
		b := newBed(t, 96)
		forkBombs(t, b)
		fullRunner(t, b)
	})
	t.Run("version 2 of cgroups", func(t *testing.T) { forkBombs(t, newBed(t, 96, unifiedGroups)) })
}

func forkBombs(t *testing.T, b *bed) {
	for name, script := range map[string]string{
		"fork":          `perl -e 'while (1) { fork }'`,
		"setsid":        `perl -e 'use POSIX; while (1) { if (!fork) { POSIX::setsid() } }'`,
		"dying parents": `perl -e 'use POSIX; while (1) { if (fork) { exit 0 } else { POSIX::setsid(); fork } }'`,
		"ignoring":      `perl -e '$SIG{$_}="IGNORE" for qw(TERM HUP INT); while (1) { fork }'`,
	} {
		t.Run(name, func(t *testing.T) {
			limit := 2 * time.Second
			if name == "dying parents" { // its first process ends immediately, however late that is noticed
				limit = wait.Limit
			}
			s, err := b.session(t, agent.Start{Argv: []string{"sh", "-c", script}, Env: testEnv, TimeLimit: limit})
			if err != nil {
				t.Fatal(err)
			}
			r := b.finish(t, s)
			if byLimit := r.exit.Cause == agent.CauseTimeLimit && r.exit.Wall >= limit; byLimit == (name == "dying parents") {
				t.Errorf("exit %+v", r.exit)
			}
			if left := b.left(t); left != "" {
				t.Errorf("left: got %q, want \"\"", left)
			}
		})
	}
}

// fullRunner checks that the agent of a full runner lives and reports it. When a command ends, the bomb
// takes its place immediately.
func fullRunner(t *testing.T, b *bed) {
	s, err := b.session(t, agent.Start{Argv: []string{"perl", "-e", `while (1) { my $p = fork; if (!defined $p) { select undef, undef, undef, 0.001 } elsif (!$p) { sleep 60; exit } }`}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	wait.For(t, "a start is refused", func() bool {
		_, err := b.start(t, agent.Start{Argv: []string{"true"}, Env: testEnv})
		var e *agent.Error
		if err != nil && (!errors.As(err, &e) || e.Code != agent.ErrTooMany) {
			t.Fatal(err)
		}
		return err != nil
	})
	t.Run("files", func(t *testing.T) { // its files are available, in many concurrent transfers
		for i := range 20 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				b.put(t, agent.Write{Path: fmt.Sprint("d/", i), Size: 3}, "abc")
				if _, all, err := b.read(t, fmt.Sprint("d/", i)); err != nil || string(all) != "abc" {
					t.Errorf("%q, %v", all, err)
				}
			})
		}
	})
	if err := s.Kill(0); err != nil {
		t.Fatal(err)
	}
	b.finish(t, s)
	if left := b.left(t); left != "" {
		t.Errorf("left: got %q, want \"\"", left)
	}
}

// User code stops every process that it may, including those that the agent has forked and that
// haven't executed yet. Such a start fails or succeeds: no process is killed without a reported
// cause, and no start waits forever.
func TestStoppedStartsFailOrSucceed(t *testing.T) {
	b := newBed(t, 96)
	attacker, err := b.session(t, agent.Start{Argv: []string{"perl", "-e", `print "on\n"; $| = 1; print "on\n"; while (1) { kill STOP, -1 }`}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // it runs
		if _, err := attacker.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		s, err := b.session(t, agent.Start{Argv: []string{"true"}, Env: testEnv, TimeLimit: 10 * time.Millisecond})
		var refused *agent.Error
		if err == nil {
			if exit := b.finish(t, s).exit; exit.Signal != "" && exit.Cause != agent.CauseTimeLimit {
				t.Errorf("it ended by %s: %+v", exit.Signal, exit)
			}
		} else if !errors.As(err, &refused) || refused.Code != agent.ErrTooMany {
			t.Fatal(err)
		}
	}
	if err := attacker.Kill(0); err != nil {
		t.Fatal(err)
	}
	b.finish(t, attacker)
	if left := b.left(t); left != "" {
		t.Errorf("left: got %q, want \"\"", left)
	}
}

// A command leaves a process whose first thread has ended, so that it looks like a zombie.
func TestProcessWithoutItsFirstThreadIsKilled(t *testing.T) {
	t.Run("without groups", func(t *testing.T) { withoutFirstThread(t, newBed(t, 0)) })
	t.Run("version 2 of cgroups", func(t *testing.T) { withoutFirstThread(t, newBed(t, 0, unifiedGroups)) })
}

func withoutFirstThread(t *testing.T, b *bed) {
	b.compile(t, `
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
void *go(void *x) { for (;;) { FILE *f = fopen("alive", "w"); fputs("x", f); fclose(f); usleep(1000); } }
int main(void) {
	pthread_t t;
	if (fork()) { while (access("alive", F_OK)) usleep(1000); return 0; }
	setsid();
	pthread_create(&t, 0, go, 0);
	pthread_exit(0);
}`)
	for range 5 {
		if r := b.run(t, "./t"); r.exit.Code != 0 || r.exit.Signal != "" {
			t.Fatalf("%+v", r)
		}
		// Z is the ended thread.
		if r := b.sh(t, "rm -f alive; cat /proc/[0-9]*/task/*/stat 2>/dev/null | grep '(t) [^ZX]'"); r.stdout != "" {
			t.Fatalf("it lives on: got %s, want \"\"", r.stdout)
		}
	}
}

// An execution holds another one's output and keeps writing to it after that one's end.
func TestOutputOfAnotherExecutionIsNotRead(t *testing.T) {
	b := newBed(t, 0)
	lender, err := b.session(t, agent.Start{ID: "lender", Argv: []string{"sh", "-c", "echo $$ >pid; until test -e held; do sleep 0.01; done; echo end"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	borrower, err := b.session(t, agent.Start{ID: "borrower", Argv: []string{"sh", "-c",
		"trap '' PIPE; until test -s pid; do sleep 0.01; done; exec 3>/proc/$(cat pid)/fd/1; : >held; while :; do echo more >&3; done 2>/dev/null"}, Env: testEnv})
	if err != nil {
		t.Fatal(err)
	}
	if r := b.finish(t, lender); r.exit.Cause != agent.CauseSelf || !strings.Contains(r.stdout, "end\n") {
		t.Errorf("%d bytes, %+v", len(r.stdout), r.exit)
	}
	// The first execution has ended while another one has its pipe.
	_ = borrower.Kill(0)
	if r := b.finish(t, borrower); r.exit.Cause != agent.CauseKill {
		t.Errorf("the borrower ended by itself: %+v", r)
	}
}
