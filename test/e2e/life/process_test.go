package life

import (
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

func TestE2EStopEndsProgramsThatIgnoreTERM(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	runner := p.Bed.ClaimUnreleased(t, "shell")
	p.Start(t, object{"runnerId": runner, "shell": "trap '' TERM INT; (setsid sleep 1000 &); sleep 1000"})
	p.Finish(t)
}

// TestE2EStopThatTakesTooLongEndsTheServer gives a server no time to stop. It exits anyway, and the
// next one adopts its runners.
func TestE2EStopThatTakesTooLongEndsTheServer(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--stop-within", "0s")
	runner := p.ClaimUnreleased(t, "shell")
	p.End(t, syscall.SIGINT, false)
	if code := p.Cmd.ProcessState.ExitCode(); code != command.CodeOurs || !strings.Contains(p.Stderr.String(), "because of --stop-within") {
		t.Errorf("exit %d: %s", code, p.Stderr.String())
	}
	p = bed.ServeBinary(t, data)
	if r := p.RunnersOf(t, "shell")[runner]; r.State != "CLAIMED" {
		t.Errorf("the claimed runner is %+v", r)
	}
	p.Finish(t)
}

// TestE2EStopWaitsForNoClient has clients that the server must not wait for, although it has an
// hour to stop. They are a subscriber that doesn't read, a request that is never complete, a
// program that keeps running, and a waiting claim.
func TestE2EStopWaitsForNoClient(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--stop-within", "1h")
	p.Call(t, `mutation { putEnvironment(input: {id: "empty", poolSize: 0}) { created } }`, nil, nil)
	runner := p.ClaimUnreleased(t, "shell")
	watcher := p.StalledSubscriber(t, p.Start(t, object{"runnerId": runner, "shell": "yes"}))
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
		claimed <- p.Do(t.Context(), `mutation { claimRunner(input: {environmentId: "empty", waitFor: 600}) { runner { id } } }`, nil, nil)
	}()
	wait.For(t, "the claim waits", func() bool {
		var out struct {
			Environment struct{ Pool struct{ Waiting int } }
		}
		p.Call(t, `{ environment(id: "empty") { pool { waiting } } }`, nil, &out)
		return out.Environment.Pool.Waiting == 1
	})
	p.End(t, syscall.SIGTERM, false)
	if err := wait.Receive(t, claimed, "the claim ends"); err == nil {
		t.Error("the claim got a runner")
	}
	p.WantNothingLeft(t)
}

func TestE2ECtrlCOfMakeRunLeavesNothing(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.Serve(t, data, "make", "--no-print-directory", "-C", bed.Source(t, "."), "-o", "build", "run", "DATA="+data, "ROCKPOOL_ON_STOP=keep") // --on-stop of make run takes precedence; bin/rockpool is built
	p.Bed.ClaimUnreleased(t, "shell")
	p.End(t, syscall.SIGINT, true)
	p.WantNothingLeft(t)
}

// TestE2EKillThenRemoveLeavesNothing kills the server while runners start, run and stop. The next
// one adopts those that live, and removes all when it stops.
func TestE2EKillThenRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	for range 3 {
		p := bed.ServeBinary(t, data)
		runner := p.Bed.ClaimUnreleased(t, "shell")
		id := p.Start(t, object{"runnerId": runner, "shell": "echo begun; sleep 1000"})
		wait.For(t, "it prints", func() bool {
			var out struct {
				Execution struct {
					Output struct{ Chunks []struct{ Text string } }
				}
			}
			p.Call(t, `query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`, object{"id": id}, &out)
			return len(out.Execution.Output.Chunks) > 0
		})
		p.Call(t, `mutation { putEnvironment(input: {id: "shell", poolSize: 6}) { created } }`, nil, nil)
		p.End(t, syscall.SIGKILL, false)
		if len(bed.Leftovers(data, p.Cgroups)) == 0 {
			t.Error("a killed server left nothing, so this test shows nothing")
		}

		p = bed.ServeBinary(t, data)
		if r := p.RunnersOf(t, "shell")[runner]; r.State != "CLAIMED" {
			t.Errorf("the claimed runner is %+v", r)
		}
		p.Call(t, `mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, object{"id": id}, nil)
		if got := p.Await(t, id); got.Outcome != "CANCELLED" || got.Stream("STDOUT") != "begun\n" {
			t.Errorf("what ran is %s and printed %q", got.Outcome, got.Stream("STDOUT"))
		}
		p.Call(t, `mutation { putEnvironment(input: {id: "shell", poolSize: 2}) { created } }`, nil, nil)
		p.End(t, syscall.SIGTERM, false)
		p.WantNothingLeft(t)
	}
}

// TestE2EClaimsAreDurable kills the server many times right after it answered a claim. Every claim
// is in the store.
func TestE2EClaimsAreDurable(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	last := ""
	for range bed.Thorough(15, 100) {
		p := bed.ServeBinary(t, data)
		if last != "" {
			p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": last}, nil)
		}
		runner := p.Bed.ClaimUnreleased(t, "shell")
		last = runner
		p.End(t, syscall.SIGKILL, false)
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
	p := bed.ServeBinary(t, data)
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
}

// TestE2ESecondServerOnTheDataNamesTheFirst needs no runners.
func TestE2ESecondServerOnTheDataNamesTheFirst(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	_, errout, code := bed.RunProgram(t, nil, bed.Rockpool(t), "serve", "--listen", "127.0.0.1:0", "--data", p.Data)
	if code == 0 || !strings.Contains(errout, strconv.Itoa(p.Cmd.Process.Pid)) {
		t.Errorf("exit %d: %s", code, errout)
	}
}

// TestE2EUnreadAccessLogDoesNotStopTheEnd: its lines go to a full pipe that nobody reads, so
// that the server can't write the last ones. It stops in order all the same.
func TestE2EUnreadAccessLogDoesNotStopTheEnd(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	p := bed.ServeTo(t, func(io.Reader) {}, data, bed.Rockpool(t), "serve", "--data", data, "--access-log", "-")
	for range 1<<16/100 + 1 { // a line has more than 100 bytes, and a pipe takes 64 KiB
		if err := p.Do(t.Context(), `{ version }`, nil, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
}

// TestE2EAServerSurvivesTheEndOfItsLog ends the reader of the log, as a closing terminal ends tee(1).
func TestE2EAServerSurvivesTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	closed := make(chan error, 1)
	p := bed.ServeTo(t, func(log io.Reader) { closed <- log.(io.Closer).Close() }, data,
		"sh", "-c", `exec "$0" "$@" 2>&1`, bed.Rockpool(t), "serve", "--data", data)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
}
