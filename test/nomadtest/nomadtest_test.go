package nomadtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"
	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

func TestMain(m *testing.M) {
	code := m.Run()
	err := drivers.Close()
	if err == nil {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestNomadRunsTasksOfEachDriverAndLeavesNothing(t *testing.T) {
	need.Nomad(t)
	a, err := Open(t.Context(), Options{Drivers: []string{"raw_exec", "exec", "docker"}})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = a.Close()
		}
	}()
	jobs := map[string]*api.Job{}
	for _, driver := range a.options.Drivers {
		jobs[driver] = register(t, a.API(), driver)
	}
	allocations := map[string]*api.Allocation{}
	for driver, job := range jobs {
		allocations[driver] = running(t, a.API(), job)
		t.Log(driver, "runs")
	}
	before := nomadLeftovers{dir: a.dir, allocations: names(filepath.Join(a.dir, "client/alloc"))}
	// A task is running before it has started its second process.
	wait.For(t, "two agents, two executors, three tasks of two processes each and their logmons run", func() bool {
		return len(before.processes()) >= 13 && before.logmons() == 3
	})

	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := a.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for driver, job := range jobs {
		if again := running(t, a.API(), job); again.ID != allocations[driver].ID {
			t.Errorf("%s: allocation %s after a restart, %s before", driver, again.ID, allocations[driver].ID)
		}
	}
	for driver, allocation := range allocations {
		if driver == "exec" {
			continue // an exec after a restart ends the task there: hashicorp/nomad#27815
		}
		var out bytes.Buffer
		code, err := a.API().Allocations().Exec(t.Context(), allocation, "t", false, []string{"cat", "/proc/self/status"}, strings.NewReader(""), &out, os.Stderr, nil, nil)
		if err != nil || code != 0 || !strings.Contains(out.String(), "Name:\tcat") {
			t.Errorf("%s: exec: code %d, %v, %q", driver, code, err, out.String())
		}
	}

	closed = true
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if left := before.processes(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if table, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(table), a.dir) {
		t.Error("mounts are left")
	}
	if _, err := os.Stat(a.dir); !os.IsNotExist(err) {
		t.Errorf("files are left: %v", err)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/nomad/*")
	more, _ := filepath.Glob("/sys/fs/cgroup/*/*")
	for _, group := range append(groups, more...) {
		if before.names(group + "/") {
			t.Errorf("a cgroup is left: %s", group)
		}
	}
}

func TestNomadWithACLAndTLSAllowsOnlyThePolicy(t *testing.T) {
	a := Start(t, Options{ACL: true, TLS: true, Namespace: "other"})
	client, err := api.NewClient(a.Config(a.Token()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	running(t, client, register(t, client, "raw_exec"))
	v := api.NewVariable("rockpool/runners/x")
	v.Items = map[string]string{"claim": "1"}
	if _, _, err := client.Variables().CheckedUpdate(v, nil); err != nil {
		t.Errorf("a variable of ours: %v", err)
	}
	if _, _, err := client.Nodes().List(nil); err != nil {
		t.Errorf("nodes: %v", err)
	}
	v = api.NewVariable("secret")
	v.Items = map[string]string{"a": "b"}
	if _, _, err := client.Variables().Create(v, nil); err == nil {
		t.Error("a variable of others could be written")
	}
	if _, _, err := client.Jobs().List(&api.QueryOptions{Namespace: "default"}); err == nil {
		t.Error("jobs of another namespace could be listed")
	}
	if err := client.System().GarbageCollect(); err == nil {
		t.Error("a token of the policy could collect garbage")
	}

	config := a.Config("")
	none, err := api.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(none.Close)
	if _, _, err := none.Jobs().List(nil); err == nil {
		t.Error("jobs could be listed without a token")
	}
	config = a.Config(a.Token())
	config.TLSConfig.ClientCert, config.TLSConfig.ClientKey = "", ""
	bare, err := api.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.Close)
	if _, err := bare.Agent().Health(); err == nil {
		t.Error("a client without a certificate was served")
	}
}

func TestLeftoversOfATestAreRemoved(t *testing.T) {
	a := Start(t, Options{})
	running(t, a.API(), register(t, a.API(), "raw_exec"))
	left := nomadLeftovers{dir: a.dir, allocations: names(filepath.Join(a.dir, "client/alloc"))}
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	// As if this process had died: the slot is free, and names the dead holder.
	at := a.slot.file.Name()
	number, err := strconv.Atoi(filepath.Base(at))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.slot.file.Close(); err != nil {
		t.Fatal(err)
	}
	a.slot = nil
	wait.For(t, "what was left is removed", func() bool {
		s, err := lockSlot(filepath.Dir(at), number)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil { // nil means another test has it, and removes what was left
			s.usable()
			if err := s.free(); err != nil {
				t.Fatal(err)
			}
		}
		_, err = os.Stat(a.dir)
		return os.IsNotExist(err) && len(left.processes()) == 0
	})
}

// TestTheCommandLeavesNothing ends `make nomad` in each way in which a user can end it.
func TestTheCommandLeavesNothing(t *testing.T) {
	need.Nomad(t)
	program := filepath.Join(t.TempDir(), "nomadtest")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			goruntime.LockOSThread() // its end is the parent's death
			defer goruntime.UnlockOSThread()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }() // it has ended, unless the test failed
			address := ""
			for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
				_, address, _ = strings.Cut(lines.Text(), "NOMAD_ADDR=")
			}
			client, err := api.NewClient(&api.Config{Address: address})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			allocation := running(t, client, register(t, client, "raw_exec"))
			self, err := client.Agent().Self()
			if err != nil {
				t.Fatal(err)
			}
			own := nomadLeftovers{dir: filepath.Dir(self.Config["DataDir"].(string)), allocations: []string{allocation.ID}}
			wait.For(t, "its logmon runs", func() bool { return own.logmons() == 1 })
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, out); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if left := own.processes(); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			if _, err := os.Stat(own.dir); !os.IsNotExist(err) {
				t.Errorf("files are left: %v", err)
			}
		})
	}
}

// logmons counts the processes that read tasks' logs.
func (o nomadLeftovers) logmons() int {
	count := 0
	for _, pid := range o.processes() {
		if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.HasSuffix(args, []byte("\x00logmon\x00")) {
			count++
		}
	}
	return count
}

// register registers a job with a task of two processes, one of them in a session of its own.
func register(t *testing.T, client *api.Client, driver string) *api.Job {
	t.Helper()
	task := api.NewTask("t", driver)
	task.Config = map[string]any{"command": "/bin/sh", "args": []string{"-c", "setsid sleep 1000 & exec sleep 1000"}}
	if driver == "docker" {
		task.Config["image"], task.Config["network_mode"] = Image, "none"
	}
	one, twenty := 1, 20
	task.LogConfig = &api.LogConfig{MaxFiles: &one, MaxFileSizeMB: &one} // so that a logmon reads them
	task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(32)}
	group := api.NewTaskGroup("g", 1).AddTask(task)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: &twenty}
	job := api.NewBatchJob(uuid.NewString(), "test", "global", 50).AddTaskGroup(group)
	job.Datacenters = []string{"*"}
	if _, _, err := client.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	return job
}

func running(t *testing.T, client *api.Client, job *api.Job) (found *api.Allocation) {
	t.Helper()
	wait.For(t, "job "+*job.ID+" runs", func() bool {
		stubs, _, err := client.Jobs().Allocations(*job.ID, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(stubs) > 0 && stubs[0].ClientStatus == api.AllocClientStatusFailed {
			for _, state := range stubs[0].TaskStates {
				for _, event := range state.Events {
					t.Log(event.DisplayMessage)
				}
			}
			t.Fatal("the task failed")
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

// TestCrashedNomadIsRestarted: a Nomad that crashes, as the client of this version can, is
// restarted, as systemd would.
func TestCrashedNomadIsRestarted(t *testing.T) {
	p := process{binary: "/bin/sh", args: []string{"-c", "echo begins; exec sleep 1000"}, log: filepath.Join(t.TempDir(), "log")}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	begins := func(n int) func() bool {
		return func() bool {
			text, _ := os.ReadFile(p.log)
			return strings.Count(string(text), "begins") == n
		}
	}
	for n := range crashes {
		wait.For(t, "it runs", begins(n+1))
		if err := p.send(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	wait.For(t, "it runs again", begins(crashes+1))
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	if !begins(crashes + 1)() {
		t.Error("a stopped process was started again")
	}
}
