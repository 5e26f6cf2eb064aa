package plain_test

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"
	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/plain"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

var shared = nomadtest.Shared{Options: nomadtest.Options{
	Drivers: []string{"raw_exec", "exec", "docker"}, Programs: []string{"readlink"},
}}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Close(); err != nil {
		println("end Nomad:", err.Error())
		code = max(code, 1)
	}
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// allocate runs a task that does nothing.
func allocate(t testing.TB, nomad *nomadtest.Nomad, driver string) *api.Allocation {
	t.Helper()
	client := nomad.API()
	task := api.NewTask("runner", driver)
	task.Config = map[string]any{"command": "/bin/sleep", "args": []string{"100000"}}
	if driver == "docker" {
		task.Config["image"], task.Config["network_mode"] = nomadtest.Image, "none"
	}
	task.LogConfig = &api.LogConfig{Disabled: new(true), MaxFiles: new(1), MaxFileSizeMB: new(1)}
	task.Resources = &api.Resources{CPU: new(100), MemoryMB: new(64)}
	group := api.NewTaskGroup("g", 1).AddTask(task)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(20)}
	job := api.NewBatchJob("plain-"+uuid.NewString(), "plain", "global", 50).AddTaskGroup(group)
	job.Datacenters = []string{"*"}
	if _, _, err := client.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, _, err := client.Jobs().Deregister(*job.ID, true, nil); err != nil {
			t.Error(err)
		}
	})
	var found *api.Allocation
	wait.For(t, "the task runs", func() bool {
		stubs, _, err := client.Jobs().Allocations(*job.ID, true, nil)
		if err != nil || len(stubs) > 0 && stubs[0].ClientStatus == api.AllocClientStatusFailed {
			t.Fatalf("the task doesn't run: %+v, %v", stubs, err)
		}
		if len(stubs) == 0 || stubs[0].ClientStatus != api.AllocClientStatusRunning {
			return false
		}
		if found, _, err = client.Allocations().Info(stubs[0].ID, nil); err != nil {
			t.Fatal(err)
		}
		return true
	})
	return found
}

// onNomad runs a test on a runner of each driver.
func onNomad(t *testing.T, test func(t *testing.T, b *bed)) {
	for _, driver := range shared.Options.Drivers {
		t.Run(driver, func(t *testing.T) { test(t, nomadBed(t, driver)) })
	}
}

func nomadBed(t testing.TB, driver string) *bed {
	t.Helper()
	nomad := shared.Nomad(t)
	allocation := allocate(t, nomad, driver)
	b := &bed{t: t, env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}
	b.exec = plain.Allocation{Client: nomad.API(), ID: allocation.ID, Task: "runner"}
	b.name = allocation.ID
	wait.For(t, "the task takes an exec", func() bool {
		nothing := plain.Command{Argv: []string{"/bin/sh", "-c", ":"}, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}
		_, err := b.exec.Exec(t.Context(), nothing)
		return !nomadtest.Unwedge(nomad.API(), allocation, "runner", err)
	})
	b.open()
	t.Cleanup(func() { b.runner.Close() })
	return b
}

func TestNomad(t *testing.T) {
	onNomad(t, func(t *testing.T, b *bed) {
		t.Log(b.runner.Workspace(), b.runner.Missing())
		if o := b.sh("echo out; echo err >&2; exit 3"); o.stdout != "out\n" || o.stderr != "err\n" || o.exit.Code != 3 || o.err != nil {
			t.Errorf("%+v", o)
		}
		if o := b.sh("kill -TERM $$"); o.exit.Signal != "SIGTERM" || o.stdout+o.stderr != "" {
			t.Errorf("%+v", o)
		}
		if o := b.sh("env; pwd"); strings.Contains(o.stdout, "NOMAD_") || !strings.Contains(o.stdout, b.runner.Workspace()) {
			t.Errorf("%+v", o)
		}
		if o := b.sh("yes 0123456789abcdef | head -c 5000000"); len(o.stdout) != 5_000_000 || o.err != nil {
			t.Errorf("%d bytes of 5000000, %v", len(o.stdout), o.err)
		}
		if _, err := b.start(agent.Start{Argv: []string{"no-such-command"}}); refused(t, err).Code != agent.ErrNotFound {
			t.Errorf("%v", err)
		}
	})
}

func TestNomadStdin(t *testing.T) {
	onNomad(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"cat"}, Stdin: true})
		text := strings.Repeat("0123456789\x00\xff\n", 50_000)
		go func() {
			if _, err := s.WriteStdin(t.Context(), 0, []byte(text)); err != nil {
				t.Error(err)
			}
			if err := s.CloseStdin(); err != nil {
				t.Error(err)
			}
		}()
		if o := follow(s); o.stdout != text || o.exit.Code != 0 || o.err != nil {
			t.Errorf("%d bytes, %+v, %v", len(o.stdout), o.exit, o.err)
		}
		s = b.begin(agent.Start{Argv: []string{"true"}, Stdin: true})
		if o := follow(s); o.exit.Code != 0 || o.err != nil {
			t.Errorf("%+v", o)
		}
	})
}

func TestNomadKill(t *testing.T) {
	onNomad(t, func(t *testing.T, b *bed) {
		const limit = 300 * time.Millisecond
		o := follow(b.begin(agent.Start{Argv: []string{"sleep", "1000"}, TimeLimit: limit}))
		if o.exit.Cause != agent.CauseTimeLimit || o.exit.Signal != "SIGKILL" || o.exit.Wall < limit || o.err != nil {
			t.Errorf("%+v", o)
		}
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", family + "echo ready; sleep 1000"}})
		ready(t, s, "ready\n")
		if err := s.Kill(0); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); o.stdout != "" || o.exit.Cause != agent.CauseKill || o.exit.Signal != "SIGKILL" || o.err != nil {
			t.Errorf("%+v", o)
		}
		wait.For(t, "none of its processes lives", func() bool {
			o := b.sh(`for p in $(cat group session naked far); do [ ! -d /proc/$p ] || grep -q '^State:.Z' /proc/$p/status || echo $p lives; done`)
			return o.stdout == "" && o.err == nil
		})
		s = b.begin(agent.Start{Argv: []string{"sh", "-c", `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done`}})
		ready(t, s, "ready\n")
		if err := s.Kill(wait.Limit); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); o.stdout != "bye\n" || o.exit.Code != 5 || o.exit.Cause != agent.CauseKill || o.err != nil {
			t.Errorf("%+v", o)
		}
	})
}

func TestNomadTerminal(t *testing.T) {
	onNomad(t, func(t *testing.T, b *bed) {
		s := b.begin(agent.Start{Argv: []string{"sh", "-c", `stty size; echo err >&2; echo ready; read -r line; echo "got $line" >&2; cat; echo over; exit 3`}, Terminal: size})
		ready(t, s, "ready")
		if _, err := s.WriteStdin(t.Context(), 0, []byte("hi\n")); err != nil {
			t.Fatal(err)
		}
		ready(t, s, "got hi\n")
		if err := s.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); !strings.HasSuffix(o.stdout, "over\r\n") || o.exit.Code != 3 || o.err != nil {
			t.Errorf("%+v", o)
		}
		s = b.begin(agent.Start{Argv: []string{"sh", "-c", "trap 'stty size; exit 0' WINCH; stty size; echo ready; while :; do sleep 0.05; done"}, Terminal: size})
		ready(t, s, "31 97\r\nready")
		if err := s.Resize(agent.Size{Columns: 40, Rows: 20}); err != nil {
			t.Fatal(err)
		}
		if o := follow(s); !strings.Contains(o.stdout, "20 40\r\n") || o.err != nil {
			t.Errorf("%+v", o)
		}
		s = b.begin(agent.Start{Argv: []string{"sh", "-c", "echo ready; exec sleep 1000"}, Terminal: size})
		ready(t, s, "ready")
		if _, err := s.WriteStdin(t.Context(), 0, []byte{3}); err != nil { // Ctrl-C
			t.Fatal(err)
		}
		if o := follow(s); o.exit.Signal != "SIGINT" || o.err != nil {
			t.Errorf("%+v", o)
		}
	})
}
