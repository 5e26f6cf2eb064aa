package nomad

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/nomadtest"
)

// coveredTemplate mounts what can't be executed where the agent must be.
const coveredTemplate = `
job "any" {
  type = "batch"
  group "g" {
    task "runner" {
      driver = "docker"
      config {
        image = "` + nomadtest.Image + `"
        mount {
          type   = "tmpfs"
          target = "/local/rockpool"
        }
      }
    }
  }
}`

// A runner in which the agent can't be, or can't do its work, is refused, and says why.
func TestRunnersThatCannotHaveTheAgentSayWhy(t *testing.T) {
	t.Parallel()
	n := container.Nomad(t)
	for name, test := range map[string]struct {
		way    string
		change func(*Config, *runtime.Environment)
		says   string
	}{
		"not root, fetched":  {"fetched", func(c *Config, _ *runtime.Environment) { c.Jobs.User = "runner" }, "must be root in its task"},
		"not root, streamed": {"streamed", func(c *Config, _ *runtime.Environment) { c.Jobs.User = "runner" }, "must be root in its task"},
		"no shell":           {"streamed", func(_ *Config, env *runtime.Environment) { env.Image = nomadtest.BareImage }, "its image has no /bin/sh"},
		"no place to execute": {"streamed", func(c *Config, env *runtime.Environment) {
			c.Jobs.Template, env.Image, env.Isolation = []byte(coveredTemplate), runtime.DefaultImage, runtime.IsolationCluster
		}, "nothing can be executed at /local/rockpool"},
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
				t.Errorf("%s: %s, want %q", r.GoneReason, r.Message, test.says)
			}
		})
	}
}
