package nomad

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// documented returns the code block of docs/guides/nomad.md in a language that contains a text.
func documented(t *testing.T, language, has string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/guides/nomad.md")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(page), "\n```"+language) {
		_, block, _ = strings.Cut(block, "\n") // the rest of the line after the language is for test/pages
		if block, _, _ = strings.Cut(block, "```\n"); strings.Contains(block, has) {
			return block
		}
	}
	t.Fatalf("docs/guides/nomad.md has no block with %q", has)
	return ""
}

// TestE2ENomadChangesByHandAreDetected registers the job that the guide shows, and
// changes it with Nomad's own command.
func TestE2ENomadChangesByHandAreDetected(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{ACL: true})
	b, _ := bed.ServeHere(t, newNomadConfig(t, n))
	type environment struct {
		Revision  int
		Image     string
		PoolSize  int
		Resources struct{ MemoryMiB, CPUMHz int }
		Pool      struct{ Idle int }
	}
	served := func() *environment {
		t.Helper()
		var out struct{ Environment *environment }
		b.Call(t, `{ environment(id: "python") { revision image poolSize resources { memoryMiB cpuMHz } pool { idle } } }`, nil, &out)
		return out.Environment
	}
	health := func() string {
		t.Helper()
		var out struct {
			Health struct {
				Components []struct{ Name, Message string }
			}
		}
		b.Call(t, `{ health { components { name message } } }`, nil, &out)
		for _, c := range out.Health.Components {
			if c.Name == "cluster" {
				return c.Message
			}
		}
		return ""
	}
	jobs := n.API().Jobs()
	job, err := jobs.ParseHCL(documented(t, "hcl", "rockpool_environment"), false)
	if err != nil {
		t.Fatal(err)
	}
	register := func() {
		t.Helper()
		if _, _, err := jobs.Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	stop := func(id string, purge bool) {
		t.Helper()
		if _, _, err := jobs.Deregister(id, purge, nil); err != nil {
			t.Fatal(err)
		}
	}

	register()
	wait.For(t, "the environment of the page is served", func() bool {
		env := served()
		return env != nil && env.Revision == 1 && env.Image == "python:3.12" && env.PoolSize == 2 && env.Resources.MemoryMiB == 256 && env.Resources.CPUMHz == 500
	})

	// The Nomad of the tests has another driver, and little capacity.
	task := job.TaskGroups[0].Tasks[0]
	task.Driver, task.User, task.Config = "raw_exec", "", nil
	task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(64)}
	job.Meta["rockpool_environment"] = `{"poolSize": 2, "isolation": "NONE"}`
	full := func(what string, revision int) {
		t.Helper()
		wait.For(t, what, func() bool {
			env := served()
			return env != nil && env.Revision == revision && env.Pool.Idle == 2
		})
	}
	register()
	full("one that was changed is served", 2)
	before := b.RunnersOf(t, "python")
	held := b.Claim(t, "python")
	task.Resources.MemoryMB = new(65)
	register()
	full("it is changed again", 3)
	wait.For(t, "the idle runners are replaced, the claimed one stays", func() bool {
		now := b.RunnersOf(t, "python")
		for id := range before {
			if _, there := now[id]; there != (id == held) {
				return false
			}
		}
		return len(now) == 3
	})
	works := func() {
		t.Helper()
		if r := b.Shell(t, held, "echo works"); r.Stream("STDOUT") != "works\n" {
			t.Errorf("%+v", r)
		}
	}
	works()

	stop(*job.ID, false)
	wait.For(t, "a stopped job is a problem", func() bool { return strings.Contains(health(), "stopped") })
	if env := served(); env == nil || env.Revision != 3 {
		t.Errorf("an environment whose job was stopped is %+v", env)
	}
	b.Release(t, b.Claim(t, "python"))
	register()
	wait.For(t, "it isn't any more", func() bool { return health() == "" })

	// An unreadable job that the server never knew is a problem until somebody removes it.
	broken := *job
	broken.ID, broken.Name, broken.Meta = new("rockpool-env-broken"), nil, map[string]string{"rockpool_environment": "{"}
	if _, _, err := jobs.Register(&broken, nil); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "a broken job is a problem", func() bool {
		return strings.Contains(health(), "environment broken") && strings.Contains(health(), "rockpool-env-broken")
	})
	stop("rockpool-env-broken", true)
	wait.For(t, "the problem is gone with it", func() bool { return health() == "" })

	stop(*job.ID, true)
	wait.For(t, "a purged environment is gone, and its idle runners", func() bool {
		left := b.RunnersOf(t, "python")
		return served() == nil && len(left) == 1 && left[held].State == "CLAIMED"
	})
	works()
	b.Release(t, held)
	wait.For(t, "no job is left", func() bool {
		left, _, err := jobs.List(nil)
		return err == nil && len(left) == 0
	})
}
