package commands

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/wait"
)

func TestE2EEnvironmentCommands(t *testing.T) {
	b := bed.Open(t)
	t.Cleanup(func() { b.Command(t, "", "env", "delete", "ruby", "perl", "--end-claimed") })
	var put []struct {
		ID        string
		Revision  int
		Variables []struct{ Name, Value string }
	}
	text := b.Works(t, "env", "put", "ruby", "--memory", "128", "--pool-size", "1", "--variable", "A=b,c=d", "--variable", "E=", "--json")
	if err := json.Unmarshal([]byte(text), &put); err != nil || len(put) != 1 || put[0].Revision != 1 || len(put[0].Variables) != 2 || put[0].Variables[0].Value != "b,c=d" {
		t.Fatalf("%v: %s", err, text)
	}
	if table := b.Works(t, "env", "list"); !strings.Contains(table, "ruby") || !strings.Contains(table, "128 MiB") || !strings.HasPrefix(table, "ENVIRONMENT") {
		t.Error(table)
	}
	if table := b.Works(t, "env", "show", "ruby"); !strings.Contains(table, "A=b,c=d") {
		t.Error(table)
	}

	// The output of show can be edited and put, once.
	shown := b.Works(t, "env", "show", "ruby", "-o", "yaml")
	edited := strings.Replace(shown, "poolSize: 1", "poolSize: 2", 1)
	if edited == shown {
		t.Fatalf("no poolSize in %s", shown)
	}
	file := filepath.Join(t.TempDir(), "ruby.yaml")
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Works(t, "env", "put", "--file", file)
	if _, errs, code := b.Command(t, strings.Replace(edited, "poolSize: 2", "poolSize: 0", 1), "env", "put", "-f", "-"); code == 0 || !strings.Contains(errs, "CONFLICT") || !strings.Contains(errs, "show") {
		t.Errorf("an old revision: %d %s", code, errs)
	}
	var now struct{ PoolSize, Revision int }
	if err := json.Unmarshal([]byte(b.Works(t, "env", "show", "ruby", "--json")), &now); err != nil || now.PoolSize != 2 || now.Revision != 2 {
		t.Errorf("%+v %v", now, err)
	}

	// Two documents, JSON, and a flag that takes precedence over the file.
	if out, errs, code := b.Command(t, `{"id": "perl", "resources": {"memoryMiB": 64}}`+"\n---\nid: ruby\npoolSize: 3\n", "env", "put", "-f", "-", "--pool-size", "0"); code != 0 || !strings.Contains(out, "perl") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if err := json.Unmarshal([]byte(b.Works(t, "env", "show", "ruby", "-o", "json")), &now); err != nil || now.PoolSize != 0 {
		t.Errorf("%+v %v", now, err)
	}
	for wrong, says := range map[string]string{
		"id: ruby\npolSize: 1\n":               "polSize",
		"id: ruby\npoolSize: many\n":           "[2:",
		"poolSize: 1\n":                        "no id",
		"id: ruby\nresources: {memory: 1}\n":   "memory",
		"# nothing\n":                          "no environment",
		"id: ruby\npoolSize: -1\n":             "0 to 1000",
		"id: ruby\nimage: 'Debian 12'\n":       "INVALID_INPUT",
		"id: ruby\nifRevision: 99\n":           "CONFLICT",
		"id: [ruby\n":                          "read standard input",
		"id: ruby\nvariables: {LANG: C}\n":     "variables",
		"id: ruby\nisolation: NONESUCH\n":      "NONESUCH",
		"id: ruby\nid: perl\npoolSize: 1\n":    "id",
		"id: ruby\nnetwork: {access: maybe}\n": "access",
	} {
		if _, errs, code := b.Command(t, wrong, "env", "put", "-f", "-"); code == 0 || !strings.Contains(errs, says) {
			t.Errorf("%q: %d %s", wrong, code, errs)
		}
	}
	if _, errs, code := b.Command(t, "", "env", "show", "nonesuch"); code == 0 || !strings.Contains(errs, "nonesuch") {
		t.Errorf("%d %s", code, errs)
	}
	out, errs, code := b.Command(t, "", "env", "delete", "nonesuch", "perl", "--json")
	if code == 0 || !strings.Contains(errs, "nonesuch") || !strings.Contains(out, `"deleted": true`) {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

func TestE2ERunnerAndExecutionCommands(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "commanded", "poolSize": 1})
	key := uuid.NewString()
	id := strings.TrimSpace(b.Works(t, "runner", "claim", "commanded", "--label", "user=ada", "--key", key))
	if again := strings.TrimSpace(b.Works(t, "runner", "claim", "commanded", "--label", "user=ada", "--key", key)); again != id {
		t.Errorf("the same key claimed %s and %s", id, again)
	}
	var listed []struct {
		ID, State, EnvironmentID string
		Claim                    struct {
			Labels []struct{ Name, Value string }
		}
	}
	text := b.Works(t, "runner", "list", "--env", "commanded", "--state", "CLAIMED", "--json")
	if err := json.Unmarshal([]byte(text), &listed); err != nil || len(listed) != 1 || listed[0].ID != id || listed[0].Claim.Labels[0].Value != "ada" {
		t.Errorf("%v: %s", err, text)
	}
	if table := b.Works(t, "runner", "list"); !strings.Contains(table, "user=ada") {
		t.Error(table)
	}

	x := b.Start(t, object{"runnerId": id, "shell": "echo out; echo err >&2; read go; exit 3", "stdin": true})
	wait.For(t, "the execution is listed as running", func() bool {
		return strings.Contains(b.Works(t, "exec", "list", "--runner", id, "--state", "RUNNING"), x)
	})
	// CONFLICT if the program ends before its line is acknowledged.
	_ = b.Do(t.Context(), `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, object{"in": object{"executionId": x, "text": "\n"}}, nil)
	if out, errs, code := b.Command(t, "", "exec", "follow", x); code != 3 || out != "out\n" || errs != "err\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if out, errs, code := b.Command(t, "", "exec", "follow", x, "--no-from-start"); code != 3 || out+errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	out, _, code := b.Command(t, "", "exec", "follow", x, "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last struct {
		Type      string `json:"__typename"`
		Execution struct{ ExitCode int }
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || code != 3 || last.Type != "ExecutionFinished" || last.Execution.ExitCode != 3 {
		t.Errorf("%v: %s", err, out)
	}

	x = b.Start(t, object{"runnerId": id, "command": []string{"sleep", "1000"}})
	b.Works(t, "exec", "cancel", x)
	if _, errs, code := b.Command(t, "", "exec", "follow", x); code != 130 || !strings.Contains(errs, "CANCELLED") {
		t.Errorf("%d %q", code, errs)
	}
	if _, errs, code := b.Command(t, "", "exec", "cancel", "nonesuch"); code == 0 || !strings.Contains(errs, "nonesuch") {
		t.Errorf("%d %q", code, errs)
	}
	if _, errs, code := b.Command(t, "", "exec", "follow", "nonesuch"); code != 125 || !strings.Contains(errs, "EXECUTION_NOT_FOUND") {
		t.Errorf("%d %q", code, errs)
	}
	b.Works(t, "runner", "release", id)
	if _, errs, code := b.Command(t, "", "runner", "release", id); code == 0 || !strings.Contains(errs, "doesn't exist") {
		t.Errorf("%d %q", code, errs)
	}
}

// TestE2EExecutionsByLabel: commands find, show and cancel executions by label, and run programs
// with labels.
func TestE2EExecutionsByLabel(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "labelled", "poolSize": 1})
	user := "user=" + uuid.NewString() // unique: executions are kept
	id := strings.TrimSpace(b.Works(t, "runner", "claim", "labelled", "--label", user))
	if list := b.Works(t, "runner", "list", "--label", user); !strings.Contains(list, id) {
		t.Error(list)
	}
	inside := []string{"runner", "exec", "--server", b.Address, id, "--label", "step=1", "--stdin", "--"}
	if out, errs, code := bed.RunProgram(t, strings.NewReader("fed"), bed.Rockpool(t), append(inside, "sh", "-c", "cat; tty >&2; exit 9")...); code != 9 || out != "fed" || errs != "not a tty\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "runner", "shell", "--server", b.Address, id, "--", "ls"); code != 2 || !strings.Contains(errs, "use: rockpool runner exec "+id+" -- ls") {
		t.Errorf("%d %q", code, errs)
	}
	x := b.Start(t, object{"runnerId": id, "shell": "exec sleep 1000 # for a while"})
	list := b.Works(t, "exec", "list", "--label", user, "--since", "1h", "--limit", "5")
	if lines := strings.Split(strings.TrimSpace(list), "\n"); len(lines) != 3 || !strings.Contains(lines[1], x) || !strings.Contains(lines[1], "exec sleep 1000 # for a while") || !strings.Contains(lines[2], "EXITED 9") {
		t.Error(list)
	}
	if list := b.Works(t, "exec", "list", "--label", user, "--label", "step", "--failed", "--command", "TTY", "--outcome", "EXITED"); strings.Count(list, "\n") != 2 || strings.Contains(list, x) {
		t.Error(list)
	}
	if out := b.Works(t, "exec", "cancel", "--label", user); !strings.Contains(out, x) || !strings.HasSuffix(out, "\ncancelled 1 execution\n") {
		t.Error(out)
	}
	if out := b.Works(t, "exec", "cancel", x); !strings.Contains(out, "already ended: cancelled (CANCELLED)") || !strings.HasSuffix(out, "\ncancelled 0 executions\n") {
		t.Error(out)
	}
	if out := b.Works(t, "exec", "show", x); !strings.Contains(out, user) || !strings.Contains(out, "CANCELLED") {
		t.Error(out)
	}
	if _, errs, code := b.Command(t, "", "exec", "cancel"); code != 2 {
		t.Errorf("%d %s", code, errs)
	}
	b.Works(t, "runner", "release", id)
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--server", b.Address, "--env", "labelled", "--label", user, "--", "true"); code != 0 {
		t.Errorf("%d %s", code, errs)
	}
	if list := b.Works(t, "exec", "list", "--label", user); strings.Count(list, "\n") != 4 {
		t.Error(list)
	}
}

// TestE2ERunFindsEnvironmentAndCompiler for a file whose name says its language.
func TestE2ERunFindsEnvironmentAndCompiler(t *testing.T) {
	privately(t)
	program := filepath.Join(t.TempDir(), `$(touch pwned);"' .c`)
	source := "#include <stdio.h>\nint main(int n, char **v) { printf(\"%d %s\", n, v[1]); return 3; }\n"
	if err := os.WriteFile(program, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", program, "two words"); out != "2 two words" || code != 3 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	if err := os.WriteFile(program, []byte("not C"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", program); out != "" || code != 1 || !strings.Contains(errs, "error:") {
		t.Errorf("what can't be compiled: %q %q %d", out, errs, code)
	}
	languages := filepath.Join(t.TempDir(), "languages.yaml")
	if err := os.WriteFile(languages, []byte(`languages: [{id: read, extensions: [.read], fileName: a.read, run: [cat, "{file}"], environments: [shell]}, {id: lacking, extensions: [.lack], fileName: a.lack, run: [nonesuch, "{file}"], environments: [lacking]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROCKPOOL_LANGUAGES", languages)
	unserved := filepath.Join(t.TempDir(), "x.lack")
	if err := os.WriteFile(unserved, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", unserved); code != 125 || !strings.Contains(errs, "`rockpool serve`") {
		t.Errorf("%q %d", errs, code)
	}
	own := filepath.Join(t.TempDir(), "x.read")
	if err := os.WriteFile(own, []byte("read"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", own); out != "read" || code != 0 {
		t.Errorf("a language of one's own: %q %q %d", out, errs, code)
	}
}

// TestE2EListCommandsReadAllPages needs more executions than fit on a page.
func TestE2EListCommandsReadAllPages(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	id := "many-" + uuid.NewString() // unique: executions are kept
	b.Put(t, object{"id": id, "poolSize": 1})
	runner := b.Claim(t, id)
	const count = 1100
	const perCall = 50
	for n := 0; n < count; n += perCall {
		var mutation strings.Builder
		for i := range perCall {
			fmt.Fprintf(&mutation, "x%d: startExecution(input: {runnerId: %q, command: [\"true\"]}) { execution { id } }\n", i, runner)
		}
		b.Call(t, "mutation {"+mutation.String()+"}", nil, nil)
	}
	var all []struct{ ID string }
	text := b.Works(t, "exec", "list", "--env", id, "--json")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != count {
		t.Fatalf("%d executions, %v", len(all), err)
	}
	seen := map[string]bool{}
	for _, x := range all {
		seen[x.ID] = true
	}
	if len(seen) != count {
		t.Errorf("%d of %d are different", len(seen), count)
	}
}

// TestE2EFollowResumesAfterCuts follows through a proxy that cuts connections.
func TestE2EFollowResumesAfterCuts(t *testing.T) {
	b := bed.Open(t)
	runner := b.Claim(t, "shell")
	x := b.Start(t, object{"runnerId": runner, "shell": "i=0; while [ $i -lt 60 ]; do seq 5000; echo mark >&2; sleep 0.02; i=$((i+1)); done; echo end >&2; exit 4"})
	proxy := bed.NewCutter(t, strings.TrimPrefix(b.Address, "http://"), 200_000)
	cutting := bed.Bed{Client: client.New("http://" + proxy.Listener.Addr().String()), Address: "http://" + proxy.Listener.Addr().String()}
	out, errs, code := cutting.Command(t, "", "exec", "follow", x)
	if want := strings.Repeat(seq(5000), 60); code != 4 || out != want {
		t.Errorf("exit %d, %d bytes of %d (%s)", code, len(out), len(want), errs)
	}
	if strings.Count(errs, "mark\n") != 60 || !strings.HasSuffix(errs, "end\n") {
		t.Errorf("%q", errs)
	}
	if n := proxy.Accepted.Load(); n < 5 {
		t.Errorf("only %d connections: this shows nothing", n)
	}
	cutting.CloseIdle()
}

func seq(n int) string {
	var text strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&text, i)
	}
	return text.String()
}

// privately sets an environment in which no server is named and none listens.
func privately(t *testing.T) (environ []string, state string) {
	t.Helper()
	if conn, err := net.Dial("tcp", strings.TrimPrefix(command.DefaultServer, "http://")); err == nil {
		_ = conn.Close()
		t.Fatalf("this test needs that none listens at %s: end what does", command.DefaultServer)
	}
	state = t.TempDir()
	environ = []string{"XDG_STATE_HOME=" + state, "ROCKPOOL_CGROUP_PARENT=" + bed.Cgroups + "-private"}
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("ROCKPOOL_CGROUP_PARENT", bed.Cgroups+"-private")
	t.Cleanup(func() {
		if left := bed.Leftovers(state, bed.Cgroups+"-private"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if there, _ := os.ReadDir(state); len(there) > 0 {
			t.Errorf("left: %v", there)
		}
	})
	return environ, state
}

func TestE2EPrivateServer(t *testing.T) {
	privately(t)
	out, errs, code := bed.RunProgram(t, strings.NewReader("fed"), bed.Rockpool(t), "run", "--env", "shell", "--stdin", "--", "sh", "-c", "cat; exit 9")
	if out != "fed" || code != 9 || strings.Count(bed.WithoutWaitingLine(errs), "\n") != 1 || !strings.Contains(errs, "starting a temporary one") {
		t.Errorf("%q %q %d", out, errs, code)
	}
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--env", "nonesuch", "--", "true"); code != 125 || !strings.Contains(errs, `no environment "nonesuch", only shell, `) {
		t.Errorf("%q %d", errs, code)
	}
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--server", "http://127.0.0.1:1", "--env", "shell", "--", "true"); code != 125 || !strings.Contains(errs, "no server listens") {
		t.Errorf("with --server and no server: %q, exit %d", errs, code)
	}
	t.Setenv("ROCKPOOL_TOKEN", "of another server")
	for _, command := range [][]string{{"run", "--env", "shell", "--", "true"}, {"mcp"}} {
		if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), command...); code != 125 || !strings.Contains(errs, "no server listens") || !strings.Contains(errs, "with a token") {
			t.Errorf("%s with a token: %q %d", command[0], errs, code)
		}
	}
}

// TestE2EPrivateServerEndsAtCtrlC ends a private server with a signal to the whole foreground
// group, as a terminal sends it, and another by SIGKILL. Its heir cleans up after that, so the program ends.
func TestE2EPrivateServerEndsAtCtrlC(t *testing.T) {
	environ, state := privately(t)
	start := func(args ...string) *screen {
		return onScreen(t, environ, bed.Rockpool(t), append([]string{"run", "--env", "shell"}, args...)...)
	}
	s := start("--", "sh", "-c", "echo begun; sleep 1000")
	s.sees(t, "begun")
	s.types(t, "\x03")
	s.ends(t, 130)

	// dash loses an interrupt that arrives while it starts a program. exec avoids that.
	s = start("--tty", "--", "sh", "-c", "echo begun; exec sleep 1000")
	s.sees(t, "begun")
	s.isRaw(t)
	s.types(t, "\x03") // for the program
	s.ends(t, 130)

	s = start("--", "sh", "-c", "echo begun; sleep 1000")
	s.sees(t, "begun")
	if len(bed.Leftovers(state, bed.Cgroups+"-private/*")) == 0 {
		t.Error("it has nothing to leave, so this test shows nothing")
	}
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	wait.For(t, "the heir has removed everything", func() bool {
		there, _ := os.ReadDir(state)
		return len(bed.Leftovers(state, bed.Cgroups+"-private/*")) == 0 && len(there) == 0
	})
	if _, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--env", "shell", "--", "true"); code != 0 {
		t.Errorf("after a killed one: %d %s", code, errs)
	}
}

// TestE2EPrivateServersRunConcurrently starts several, while others end.
func TestE2EPrivateServersRunConcurrently(t *testing.T) {
	privately(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for range 4 {
				if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--env", "shell", "--", "echo", "ran"); code != 0 || out != "ran\n" {
					t.Errorf("%d %q %q", code, out, errs)
				}
			}
		})
	}
	group.Wait()
}
