package nomad

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// A runner that can't contain or run the agent is rejected with the reason.
func TestRunnersReportWhyTheyHaveNoAgent(t *testing.T) {
	t.Parallel()
	n := container.Nomad(t)
	for name, test := range map[string]struct {
		way    string
		change func(*Config, *runtime.Environment)
		says   string
	}{
		"not root, fetched: start fails":  {"fetched", func(c *Config, _ *runtime.Environment) { c.Jobs.User = "runner" }, "--nomad-user"},
		"not root, streamed: start fails": {"streamed", func(c *Config, _ *runtime.Environment) { c.Jobs.User = "runner" }, "--nomad-user"},
		"no shell: start fails":           {"streamed", func(_ *Config, env *runtime.Environment) { env.Image = nomadtest.BareImage }, "/bin/sh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t, n, job.Docker)
			c.Jobs.Agent = ways[test.way](t)
			env := rawEnvironment()
			env.ID, env.Revision, env.RunnerRevision, env.Image, env.Isolation = "a", 1, 1, nomadtest.Image, runtime.IsolationNamespaces
			test.change(&c, &env)
			b := bed{Cluster: start(t, c), t: t, n: n, env: env}
			if err := b.PutEnvironment(t.Context(), env); err != nil {
				t.Fatal(err)
			}
			id := runtime.NewRunnerID()
			if err := b.Start(t.Context(), id, env, runtime.PriorityRefill); err != nil {
				t.Fatal(err)
			}
			if r := b.awaitGone(id); r.GoneReason != runtime.GoneStartFailed || !strings.Contains(r.Message, test.says) {
				t.Errorf("got %s: %s, want START_FAILED: %q", r.GoneReason, r.Message, test.says)
			}
		})
	}
}

// A directory that isn't writable and one that is noexec give different errors, and a failed try
// leaves no file.
func TestTheAgentIsDelivered(t *testing.T) {
	t.Parallel()
	n := container.Nomad(t)
	b := bed{Cluster: start(t, config(t, n, job.Docker)), t: t, n: n, env: rawEnvironment()}
	b.env.ID, b.env.Revision, b.env.RunnerRevision, b.env.Image, b.env.Isolation = "a", 1, 1, nomadtest.Image, runtime.IsolationNamespaces
	if err := b.PutEnvironment(t.Context(), b.env); err != nil {
		t.Fatal(err)
	}
	id := b.idle()
	// It tries as often as for a runner: Nomad can report success for an exec that never started,
	// or lose its output.
	to := func(path, last string) (err error) {
		for range maxDeliveries {
			err = b.delivery.To(t.Context(), "", b.allocation(id).ID, job.TaskName, path)
			if err == nil || last != "" && strings.Contains(err.Error(), last) {
				break
			}
		}
		return err
	}
	var refusal *connection.RefusalError
	const noexec, unwritable = "noexec", "can't be written to /usr/x"
	if err := to("/dev/shm/x/agent", noexec); !errors.As(err, &refusal) || !strings.Contains(err.Error(), noexec) {
		t.Errorf("where nothing can be executed: got %v, want a refusal with %q", err, noexec)
	}
	if err := to("/usr/x/agent", unwritable); err == nil || errors.As(err, &refusal) || !strings.Contains(err.Error(), unwritable) {
		t.Errorf("where nothing can be written: got %v, want %q", err, unwritable)
	}
	var together sync.WaitGroup
	for range 3 { // two servers, or a try after one that hangs
		together.Go(func() {
			if err := to("/local/x/agent", ""); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	wait.For(t, "the agent is there, and nothing else", func() bool { // a try of which Nomad said too early that it ended removes its file later
		return b.run(id, "sh", "-c", "ls /dev/shm/x /local/x; /local/x/agent digest | wc -c") == "/dev/shm/x:\n\n/local/x:\nagent\n65\n"
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.delivery.To(ended, "", b.allocation(id).ID, job.TaskName, "/local/y/agent"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}
