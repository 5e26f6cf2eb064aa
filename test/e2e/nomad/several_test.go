package nomad

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/port"
	"github.com/rockpool/rockpool/test/postgrestest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2ENomadSeveralServersServeAsOne: every server answers requests, streams and file transfers
// as the leader does. When the leader ends, another server takes over.
func TestE2ENomadSeveralServersServeAsOne(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	serve := func() (bed.Bed, func()) {
		settings := newNomadConfig(t, n)
		settings.Listen, settings.PeerListen, settings.AdvertiseURL = port.Spare(t), port.Spare(t), ""
		settings.Nomad.StreamAgent = true // so that runners don't need a server
		return bed.ServeHere(t, settings)
	}
	first, stop := serve()
	wait.For(t, "the first server leads", func() bool { return first.Do(t.Context(), `{ environments { id } }`, nil, nil) == nil })
	second, _ := serve()
	wait.For(t, "the second passes on", func() bool { return second.Do(t.Context(), `{ environments { id } }`, nil, nil) == nil })

	p := driverBed{Bed: second, nomad: n, driver: "raw_exec"}
	runner := p.claim(t, "shared", object{"image": "host", "isolation": "NONE"})
	r := first.Shell(t, runner, "echo one; cat >f")
	if r.Stream("STDOUT") != "one\n" {
		t.Fatalf("claimed at the second and used at the first: %+v", r)
	}
	var output struct {
		Execution struct {
			Outcome string
			Output  struct{ Chunks []struct{ Text string } }
		}
	}
	second.Call(t, `query($id: ID!) { execution(id: $id) { outcome output { chunks { text } } } }`, object{"id": r.Id}, &output)
	if x := output.Execution; x.Outcome != "EXITED" || len(x.Output.Chunks) != 1 || x.Output.Chunks[0].Text != "one\n" {
		t.Errorf("what the first ran, at the second: %+v", x)
	}
	// A subscription over a WebSocket, and a file larger than any buffer, through the second server.
	large := strings.Repeat("0123456789abcdef", 1<<18)
	if err := second.Client.UploadFile(t.Context(), runner, "/workspace/large", "", false, int64(len(large)), strings.NewReader(large)); err != nil {
		t.Fatal(err)
	}
	if r := second.Shell(t, runner, "wc -c <large"); r.Stream("STDOUT") != "4194304\n" {
		t.Errorf("%+v", r)
	}

	stop()
	wait.For(t, "the second leads", func() bool { return second.Do(t.Context(), `{ environments { id } }`, nil, nil) == nil })
	if r := second.Shell(t, runner, "ls"); r.Stream("STDOUT") != "f\nlarge\n" {
		t.Errorf("after the first server's end: %+v", r)
	}
	if _, err := client.ReleaseRunner(t.Context(), second.Client, runner); err != nil {
		t.Error(err)
	}
}

// TestE2ENomadKilledLeaderIsReplaced: the others see that its process ended, and don't
// wait for its lock to expire, which takes four minutes here. The servers share a database, so the
// next leader knows all that the first one ran, and continues with what runs.
func TestE2ENomadKilledLeaderIsReplaced(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	database := postgrestest.Start(t)
	token := writeFile(t, "correct-horse-battery")
	serve := func() (*client.Client, *exec.Cmd) {
		at := port.Spare(t)
		cmd := exec.Command(bed.Rockpool(t), "serve", "--cluster", "nomad", "--nomad-address", n.Address(), "--nomad-driver", "raw_exec", "--nomad-stream-agent",
			"--nomad-lock-ttl", "120", "--listen", at, "--peer-listen", port.Spare(t), "--data", t.TempDir(), "--token-file", token, "--database", database.URL)
		var log lockedText
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
			if t.Failed() {
				t.Log(log.String())
			}
		})
		return client.New("http://" + at).WithToken("correct-horse-battery"), cmd
	}
	answers := func(c *client.Client) func() bool {
		return func() bool { return c.Do(t.Context(), `{ environments { id } }`, nil, nil) == nil }
	}
	call := func(c *client.Client, query string, variables object, into any) {
		bed.Bed{Client: c}.Call(t, query, variables, into)
	}
	first, process := serve()
	wait.For(t, "the first server leads", answers(first))
	second, _ := serve()
	third, _ := serve()
	wait.For(t, "the second passes on", answers(second))
	wait.For(t, "the third passes on", answers(third))
	p := driverBed{Bed: bed.Bed{Client: third}, nomad: n, driver: "raw_exec"}
	runner := p.claim(t, "shared", object{"image": "host", "isolation": "NONE"})
	ended := p.Shell(t, runner, "echo kept >f; echo said")

	const start = `mutation($runner: ID!, $key: String!, $script: String!) { startExecution(input: {runnerId: $runner, idempotencyKey: $key, command: ["sh", "-c", $script]}) { execution { id } } }`
	var runs struct {
		StartExecution struct{ Execution struct{ ID string } }
	}
	goesOn := object{"runner": runner, "key": "once", "script": "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo once >>times"}
	call(third, start, goesOn, &runs)
	var printed struct {
		Execution struct {
			State, Outcome string
			Output         struct{ Chunks []struct{ Text string } }
		}
	}
	const look = `query($id: ID!) { execution(id: $id) { state outcome output { chunks { text } } } }`
	id := runs.StartExecution.Execution.ID
	wait.For(t, "it prints", func() bool {
		call(third, look, object{"id": id}, &printed)
		return len(printed.Execution.Output.Chunks) > 0
	})

	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	wait.For(t, "another server leads", func() bool { return answers(second)() && answers(third)() })
	t.Logf("after %s", time.Since(killed))
	call(second, look, object{"id": ended.Id}, &printed)
	if x := printed.Execution; x.Outcome != "EXITED" || len(x.Output.Chunks) != 1 || x.Output.Chunks[0].Text != "said\n" {
		t.Errorf("what the killed server ran, at the next: %+v", x)
	}
	call(second, start, goesOn, &runs)
	if again := runs.StartExecution.Execution.ID; again != id {
		t.Errorf("the key that was used at the killed server starts %s at the next, not %s", again, id)
	}
	wait.For(t, "the execution ends", func() bool {
		call(second, look, object{"id": id}, &printed)
		return printed.Execution.State == "FINISHED"
	})
	var text, want strings.Builder
	for _, chunk := range printed.Execution.Output.Chunks {
		text.WriteString(chunk.Text)
	}
	for i := range 400 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if printed.Execution.Outcome != "EXITED" || text.String() != want.String() {
		t.Errorf("it printed %q, %s", text.String(), printed.Execution.Outcome)
	}
	if r := p.Shell(t, runner, "cat f times"); r.Stream("STDOUT") != "kept\nonce\n" {
		t.Errorf("the claimed runner says %+v", r)
	}
}
