package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// rockpool returns the built program.
func rockpool(t testing.TB) string {
	t.Helper()
	need.Program(t)
	path, err := filepath.Abs("bin/rockpool")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("this test runs bin/rockpool: run make build first (%v)", err)
	}
	return path
}

// runProgram runs a program to its end.
func runProgram(t testing.TB, stdin io.Reader, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errout bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errout
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return out.String(), errout.String(), cmd.ProcessState.ExitCode()
}

var waitingLine = regexp.MustCompile(`(?m)^rockpool: waiting for a runner of .*\n`)

// atOnce returns what a program says where it needn't wait for a runner: on a busy
// machine it may have to, and says so.
func atOnce(stderr string) string { return waitingLine.ReplaceAllString(stderr, "") }

// A process is bin/rockpool serve, or what runs it, as a user starts it.
type process struct {
	bed
	cmd     *exec.Cmd
	cgroups string
	stderr  keptLog
}

var readyURL = regexp.MustCompile(`rockpool is ready: (http://\S+)/graphql`)

// serve starts a command and waits until it says that it is ready.
func serve(t testing.TB, data string, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), cgroups: cgroupsOf(data)}
	explain(t, &p.stderr)
	p.cmd.Env = append(os.Environ(), "ROCKPOOL_LISTEN=127.0.0.1:0", "ROCKPOOL_ON_STOP=remove", "ROCKPOOL_CGROUP_PARENT="+p.cgroups,
		"ROCKPOOL_STOP_WITHIN="+wait.Limit.String()) // a busy machine may need more than a server gives itself
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a signal to all of it misses us
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			_ = p.cmd.Wait()
		}
	})
	hangs := time.AfterFunc(wait.Limit, func() { _ = p.cmd.Process.Kill() })
	defer hangs.Stop()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if m := readyURL.FindStringSubmatch(lines.Text()); m != nil {
			p.bed = bed{Client: client.New(m[1]), url: m[1], data: data}
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			t.Cleanup(p.CloseIdle)
			t.Cleanup(func() {
				if p.cmd.ProcessState == nil {
					p.askEvents(t)
				}
			})
			return p
		}
	}
	_ = p.cmd.Wait()
	t.Fatalf("the server ended before it was ready: %s", p.stderr.String())
	return nil
}

func serveBinary(t testing.TB, data string) *process {
	t.Helper()
	return serve(t, data, rockpool(t), "serve", "--data", data)
}

// end sends a signal to the server, or to its whole group, and waits for its end.
// SIGTERM must end a server in order.
func (p *process) end(t testing.TB, signal syscall.Signal, group bool) {
	t.Helper()
	p.askEvents(t)
	pid := p.cmd.Process.Pid
	if group {
		pid = -pid
	}
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	hangs := time.AfterFunc(wait.Limit, func() { _ = p.cmd.Process.Kill() })
	defer hangs.Stop()
	if err := p.cmd.Wait(); err != nil && signal == syscall.SIGTERM && !group {
		t.Errorf("the server ended with %v", err)
	}
}

func (p *process) wantNothingLeft(t testing.TB) {
	t.Helper()
	if left := leftovers(p.data, p.cgroups); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// dataDir returns a data directory. Whatever becomes of the test, no runner of
// it outlives it.
func dataDir(t testing.TB) string {
	t.Helper()
	need.Sandboxes(t)
	data := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() {
		if t.Failed() && len(leftovers(data, cgroupsOf(data))) > 0 {
			p := serveBinary(t, data)
			p.end(t, syscall.SIGTERM, false)
		}
	})
	return data
}

// cgroupsOf is the cgroup below which a test's servers have theirs.
func cgroupsOf(data string) string {
	place := strings.ReplaceAll(strings.TrimPrefix(filepath.Dir(data), os.TempDir()+"/"), "/", "-")
	return "rockpool/" + strings.TrimPrefix(place, "-") + "-" + strconv.Itoa(os.Getpid())
}

func TestE2ETermEndsWhatIgnoresIt(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	runner := p.bed.claimLoosely(t, "shell")
	p.start(t, object{"runnerId": runner, "shell": "trap '' TERM INT; (setsid sleep 1000 &); sleep 1000"})
	p.finish(t)
}

// TestE2EStopThatTakesTooLongEndsTheServer gives a server no time to stop: it ends
// as it is, and the next one takes over what there is.
func TestE2EStopThatTakesTooLongEndsTheServer(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--stop-within", "0s")
	runner := p.claimLoosely(t, "shell")
	p.end(t, syscall.SIGINT, false)
	if code := p.cmd.ProcessState.ExitCode(); code != cli.CodeOurs || !strings.Contains(p.stderr.String(), "stopping took too long") {
		t.Errorf("exit %d: %s", code, p.stderr.String())
	}
	p = serveBinary(t, data)
	if r := p.runnersOf(t, "shell")[runner]; r.State != "CLAIMED" {
		t.Errorf("the claimed runner is %+v", r)
	}
	p.finish(t)
}

// TestE2EStopWaitsForNoClient has clients that never do what the server could wait
// for: a watcher that doesn't read, a request that isn't sent to its end, a program
// that runs on, and a claim that waits. The server may take an hour to stop.
func TestE2EStopWaitsForNoClient(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, rockpool(t), "serve", "--data", data, "--stop-within", "1h")
	p.call(t, `mutation { putEnvironment(input: {id: "empty", poolSize: 0}) { created } }`, nil, nil)
	runner := p.claimLoosely(t, "shell")
	watcher := p.slowWatcher(t, p.start(t, object{"runnerId": runner, "shell": "yes"}))
	defer watcher.Close()
	if _, err := io.ReadFull(watcher, make([]byte, 10)); err != nil { // and no more
		t.Fatal(err)
	}
	half, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(p.URL(), "http://"), "/graphql"))
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := io.WriteString(half, "POST /graphql HTTP/1.1\r\nHost: rockpool\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() {
		claimed <- p.Ask(t.Context(), `mutation { claimRunner(input: {environmentId: "empty", waitFor: 600}) { runner { id } } }`, nil, nil)
	}()
	wait.For(t, "the claim waits", func() bool {
		var out struct {
			Environment struct{ Pool struct{ Waiting int } }
		}
		p.call(t, `{ environment(id: "empty") { pool { waiting } } }`, nil, &out)
		return out.Environment.Pool.Waiting == 1
	})
	p.end(t, syscall.SIGTERM, false)
	if err := wait.Receive(t, claimed, "the claim ends"); err == nil {
		t.Error("the claim got a runner")
	}
	p.wantNothingLeft(t)
}

func TestE2ECtrlCOfMakeRunLeavesNothing(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, data, "make", "--no-print-directory", "-o", "build", "run", "DATA="+data, "ROCKPOOL_ON_STOP=keep") // its flag wins; bin/rockpool is built
	p.bed.claimLoosely(t, "shell")
	p.end(t, syscall.SIGINT, true)
	p.wantNothingLeft(t)
}

// TestE2EKillThenRemoveLeavesNothing kills the server while runners start,
// run and stop; the next one takes over what lives, and removes all at its end.
func TestE2EKillThenRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	for range 3 {
		p := serveBinary(t, data)
		runner := p.bed.claimLoosely(t, "shell")
		id := p.start(t, object{"runnerId": runner, "shell": "echo begun; sleep 1000"})
		wait.For(t, "it prints", func() bool {
			var out struct {
				Execution struct {
					Output struct{ Chunks []struct{ Text string } }
				}
			}
			p.call(t, `query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`, object{"id": id}, &out)
			return len(out.Execution.Output.Chunks) > 0
		})
		p.call(t, `mutation { putEnvironment(input: {id: "shell", poolSize: 6}) { created } }`, nil, nil)
		p.end(t, syscall.SIGKILL, false)
		if len(leftovers(data, p.cgroups)) == 0 {
			t.Error("a killed server left nothing, so this test shows nothing")
		}

		p = serveBinary(t, data)
		if r := p.runnersOf(t, "shell")[runner]; r.State != "CLAIMED" {
			t.Errorf("the claimed runner is %+v", r)
		}
		p.call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": id}, nil)
		if got := p.await(t, id); got.Outcome != "CANCELLED" || got.stream("STDOUT") != "begun\n" {
			t.Errorf("what ran is %s and printed %q", got.Outcome, got.stream("STDOUT"))
		}
		p.call(t, `mutation { putEnvironment(input: {id: "shell", poolSize: 2}) { created } }`, nil, nil)
		p.end(t, syscall.SIGTERM, false)
		p.wantNothingLeft(t)
	}
}

// TestE2EClaimsAreDurable kills the server many times right after it answered a
// claim: every claim is in the store.
func TestE2EClaimsAreDurable(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	last := ""
	for range thorough(15, 100) {
		p := serveBinary(t, data)
		if last != "" {
			p.call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": last}, nil)
		}
		runner := p.bed.claimLoosely(t, "shell")
		last = runner
		p.end(t, syscall.SIGKILL, false)
		found := false
		recorded(t, data, func(r runtime.Runner) {
			if string(r.ID) == runner {
				found = r.State == runtime.RunnerClaimed && r.Claim.Epoch == 1 && !r.Claim.ExpiresAt.IsZero()
			}
		})
		if !found {
			t.Fatalf("the claim of runner %s isn't in the store", runner)
		}
	}
	p := serveBinary(t, data)
	p.end(t, syscall.SIGTERM, false)
	p.wantNothingLeft(t)
}

// TestE2ESecondServerIsToldWhoHoldsTheData needs no runners.
func TestE2ESecondServerIsToldWhoHoldsTheData(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	_, errout, code := runProgram(t, nil, rockpool(t), "serve", "--listen", "127.0.0.1:0", "--data", p.data)
	if code == 0 || !strings.Contains(errout, strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("exit %d: %s", code, errout)
	}
}

// claimLoosely claims a runner that nobody releases.
func (b bed) claimLoosely(t testing.TB, environment string) string {
	t.Helper()
	var out struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	b.call(t, `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`,
		object{"in": object{"environmentId": environment, "waitFor": int(wait.Limit.Seconds())}}, &out)
	claimed(t, out.ClaimRunner.Runner.ID)
	return out.ClaimRunner.Runner.ID
}
