package nomadtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/bridge"
	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/test/wait"
)

// These tests show the agent's guarantees as a task of each driver, through a
// real alloc exec. The tests of package nomad show the rest.

var drivers = Shared{Options: Options{Drivers: []string{"raw_exec", "exec", "docker"}}}

// TestAgentRunsAsATaskOfEachDriver shows the agent's guarantees as a task of each driver, through a
// real alloc exec. The tests of package nomad show the agent's other guarantees there.
func TestAgentRunsAsATaskOfEachDriver(t *testing.T) {
	n := drivers.Nomad(t)
	files, err := embedded.NewFiles()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(files)
	defer server.Close()
	sum := files.ArchiveSum(goruntime.GOARCH)
	for _, driver := range n.options.Drivers {
		t.Run(driver, func(t *testing.T) {
			job := agentJob(driver, server.URL+embedded.Prefix+sum, sum)
			if _, _, err := n.API().Jobs().Register(job, nil); err != nil {
				t.Fatal(err)
			}
			allocation := running(t, n.API(), job)
			c := openBridge(t, n.API(), driver, allocation)
			for script, want := range map[string]string{
				"id -u; id -g; pwd":                       "1000\n1000\n/workspace\n",
				"stat -c '%a %u' /workspace":              "755 1000\n",
				"env | sort":                              "PATH=/usr/bin:/bin\nPWD=/workspace\n",
				"cat /proc/1/environ 2>&1":                "cat: /proc/1/environ: Permission denied\n",
				"echo hi >/workspace/f; cat f":            "hi\n",
				"kill -9 1 2>/dev/null || echo refused":   "refused\n",
				"ls /secrets 2>/dev/null || echo refused": "refused\n",
				"mv /local /x 2>/dev/null || mv /local/rockpool-agent /x 2>/dev/null || mv /bin /x 2>/dev/null || echo refused": "refused\n",
				"grep -e CapEff -e CapBnd -e NoNewPrivs -e Seccomp: /proc/self/status | cut -f 2 | tr '\\n' ' '":                "0000000000000000 0000000000000000 1 2 ",
				"for p in /proc/[0-9]*; do test -r $p/environ && grep -c NOMAD $p/environ; done | sort -u":                      "0\n",
			} {
				if got := shell(t, c, script); got != want {
					t.Errorf("%s\n got %q\nwant %q", script, got, want)
				}
			}
			// Started in another session by its execution: it ends with the execution.
			shell(t, c, "(setsid sleep 4000 &); exec sleep 0.1")
			if got := shell(t, c, "ps -e | grep -c 'sleep$'"); got != "0\n" {
				t.Errorf("%s processes were left", got)
			}
			if _, _, err := n.API().Jobs().Deregister(*job.ID, true, nil); err != nil {
				t.Fatal(err)
			}
			wait.Receive(t, c.Done(), "the bridge's end, with its runner")
		})
	}
}

func agentJob(driver, url, sum string) *api.Job {
	task := api.NewTask("agent", driver)
	if driver == "docker" {
		task.User = "root"
	}
	dir, workspace := "${NOMAD_TASK_DIR}", "/workspace"
	if driver == "raw_exec" {
		workspace = dir + "/workspace" // the agent's program is in dir
	}
	task.Config = map[string]any{
		"command": dir + "/" + embedded.ArchivedName,
		"args":    []string{"serve", "--socket", "${NOMAD_SECRETS_DIR}/agent.sock", "--workspace", workspace},
	}
	if driver == "docker" {
		task.Config["image"], task.Config["network_mode"] = Image, "none"
	}
	task.Artifacts = []*api.TaskArtifact{{
		GetterSource: new(url), GetterOptions: map[string]string{"checksum": "sha256:" + sum, "archive": "tar"},
		GetterMode: new("dir"), RelativeDest: new("local"),
	}}
	task.LogConfig = &api.LogConfig{Disabled: new(true), MaxFiles: new(1), MaxFileSizeMB: new(1)}
	task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(64)}
	group := api.NewTaskGroup("runner", 1).AddTask(task)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(20)}
	group.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}
	job := api.NewBatchJob("agent-"+driver+"-"+uuid.NewString()[:8], "test", "global", 50).AddTaskGroup(group)
	job.Datacenters = []string{"*"}
	return job
}

// openBridge opens a bridge to the agent. Nomad may report a task as running before it accepts an
// exec for it.
func openBridge(t *testing.T, client *api.Client, driver string, allocation *api.Allocation) (c *bridge.Client) {
	t.Helper()
	var ended <-chan error
	wait.For(t, "the agent answers", func() bool {
		c, ended = newBridge(t, client, driver, allocation)
		conn, err := c.Dial(t.Context())
		if err == nil {
			_, err = agent.PingAgent(t.Context(), conn)
		}
		if err == nil {
			return true
		}
		_ = c.Close()
		if why := <-ended; !Unwedge(client, allocation, "agent", why) {
			t.Logf("%v; the exec ended with %v", err, why)
		}
		return false
	})
	t.Cleanup(func() {
		_ = c.Close()
		t.Logf("the exec ended with %v", <-ended)
	})
	return c
}

// newBridge opens a bridge through alloc exec. The channel gets the exec's end.
func newBridge(t *testing.T, client *api.Client, driver string, allocation *api.Allocation) (*bridge.Client, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	command := []string{"/local/" + embedded.ArchivedName, "bridge"}
	if driver == "raw_exec" {
		command[0] = "local/" + embedded.ArchivedName // in the task's directory, where an exec begins
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		var said bytes.Buffer
		code, err := client.Allocations().Exec(ctx, allocation, "agent", false, command, inR, outW, &said, nil, nil)
		if err == nil {
			err = fmt.Errorf("exit %d", code)
		}
		err = fmt.Errorf("%w: %s", err, said.String())
		_ = outW.CloseWithError(err)
		_ = inR.CloseWithError(err)
		ended <- err
	}()
	c, err := bridge.NewClient(exchange{outR, inW, cancel})
	if err != nil {
		t.Fatal(err)
	}
	return c, ended
}

type exchange struct {
	*io.PipeReader
	in     *io.PipeWriter
	cancel context.CancelFunc
}

func (e exchange) Write(b []byte) (int, error) { return e.in.Write(b) }
func (e exchange) Close() error {
	e.cancel()
	return errors.Join(e.in.Close(), e.PipeReader.Close())
}

// shell runs a script and returns its output.
func shell(t *testing.T, c *bridge.Client, script string) string {
	t.Helper()
	conn, err := c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := agent.StartExecution(t.Context(), conn, agent.Start{ID: uuid.NewString(), Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var printed strings.Builder
	for {
		e, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case agent.KindOutput:
			printed.Write(e.Data)
			if err := s.Ack(e.Offset + int64(len(e.Data))); err != nil {
				t.Fatal(err)
			}
		case agent.KindExited:
			if err := s.Settled(); err != nil {
				t.Fatal(err)
			}
			return printed.String()
		}
	}
}
