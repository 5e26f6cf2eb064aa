package languages

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/test/e2e/bed"
)

type object = map[string]any

// A Platform is where runners run.
type Platform struct {
	Name      string
	Image     string // of its environments
	Isolation string // of its environments; "" means the default
}

// A Suite runs programs on one platform, two at the same time.
type Suite struct {
	Platform
	bed.Bed
	Rockpool string // the program's path
	slots    chan struct{}

	mu           sync.Mutex      // guards the fields below
	environments map[string]bool // those that exist
	has          map[string]bool // whether the platform has a program or a file
	results      []result
}

// A result is what came of a program.
type result struct {
	Program
	Came
	how string // passed, failed, pending, differs or lacks …
}

// New returns a suite for a server on a platform.
func New(t testing.TB, b bed.Bed, p Platform) *Suite {
	t.Helper()
	return &Suite{Platform: p, Bed: b, Rockpool: bed.Rockpool(t), slots: make(chan struct{}, 2), environments: map[string]bool{}, has: map[string]bool{}}
}

// Run runs programs as parts of t, and logs a summary. A program whose tools the platform lacks is
// skipped; missing is called with the tool.
func (s *Suite) Run(t *testing.T, all []Program, missing func(t testing.TB, tool string)) {
	t.Helper()
	s.look(t, all)
	for _, p := range all {
		s.prepare(t, p)
	}
	t.Run(s.Name, func(t *testing.T) {
		for _, p := range all {
			t.Run(p.ID(), func(t *testing.T) {
				if i := slices.IndexFunc(p.Needs, func(tool string) bool { return !s.has[tool] }); i >= 0 {
					s.record(result{Program: p, how: "lacks " + p.Needs[i]})
					missing(t, p.Needs[i])
					return
				}
				t.Parallel()
				s.slots <- struct{}{}
				defer func() { <-s.slots }()
				s.one(t, p)
			})
		}
	})
	t.Log(s.Summary())
}

// one runs a program and judges what comes.
func (s *Suite) one(t *testing.T, p Program) {
	came := s.came(t, p)
	how, wrong := p.judge(s.Name, came)
	if how == "failed" {
		t.Errorf("%s\nstdout %q\nstderr %q\nmessage %q", strings.Join(wrong, "\n"), brief(came.Stdout), brief(came.Stderr), came.Message)
	} else if len(wrong) > 0 {
		t.Logf("%s: %s", how, strings.Join(wrong, "; "))
	}
	s.record(result{Program: p, Came: came, how: how})
}

// judge returns what a program did on a platform: it passed, failed, differs or is pending. It also
// returns what is wrong, or else how it differs.
func (p Program) judge(platform string, came Came) (how string, wrong []string) {
	wrong = came.wrong(p.Want)
	differs, how := p.On[platform], "pending"
	reason := cmp.Or(differs.Reason, p.Pending)
	if differs.Reason != "" {
		how = "differs"
	}
	switch {
	case reason == "" && len(wrong) == 0:
		return "passed", nil
	case reason == "":
		return "failed", wrong
	case len(wrong) == 0:
		return "failed", []string{"it passes: remove its mark " + strconv.Quote(reason)}
	case differs.Want != nil:
		if instead := came.wrong(*differs.Want); len(instead) > 0 {
			return "failed", instead
		}
	}
	return how, wrong
}

func (s *Suite) record(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, r)
}

// look finds out which of the programs' tools the platform has.
func (s *Suite) look(t testing.TB, all []Program) {
	t.Helper()
	var tools []string
	for _, p := range all {
		tools = append(tools, p.Needs...)
	}
	slices.Sort(tools)
	tools = slices.Compact(tools)
	s.prepare(t, Program{})
	// The module of a tool python3:numpy is imported, since a distribution decides where it is.
	script := `for tool; do case $tool in
python3:*) python3 -c "import ${tool#*:}" ;;
*) command -v "$tool" || [ -e "$tool" ] ;;
esac >/dev/null 2>&1 && echo "$tool"; done`
	command := slices.Concat([]string{"sh", "-c", script, "sh"}, tools)
	out, errs, code := bed.RunProgram(t, nil, s.Rockpool, slices.Concat([]string{"run", "--server", s.Address, "--env", s.environment(Program{}), "--"}, command)...)
	if out == "" && len(tools) > 0 {
		t.Fatalf("%s has none of the programs' tools: %s (exit %d)", s.Name, errs, code)
	}
	for tool := range strings.Lines(out) {
		s.has[strings.TrimSpace(tool)] = true
	}
}

// resources returns the limits of a program's runner.
func (p Program) resources() object {
	var recipe language.Recipe
	if len(p.Run) > 0 {
		recipe, _ = language.Default().ByFile(p.Run[0])
	}
	l, r := recipe.Limits, p.Resources
	resources := object{}
	for name, value := range map[string]int{"memoryMiB": cmp.Or(r.MemoryMiB, l.MemoryMiB), "processes": cmp.Or(r.Processes, l.Processes),
		"workspaceMiB": cmp.Or(r.WorkspaceMiB, l.WorkspaceMiB), "cpuMHz": r.Megahertz} {
		if value != 0 {
			resources[name] = value
		}
	}
	return resources
}

// environment returns the name of the environment with a program's limits.
func (s *Suite) environment(p Program) string {
	parts := []string{s.Name}
	resources := p.resources()
	for _, limit := range slices.Sorted(maps.Keys(resources)) {
		parts = append(parts, fmt.Sprintf("%c%v", limit[0], resources[limit]))
	}
	return strings.Join(parts, "-")
}

// prepare puts a program's environment until the test's end.
func (s *Suite) prepare(t testing.TB, p Program) {
	t.Helper()
	name := s.environment(p)
	if s.environments[name] {
		return
	}
	s.environments[name] = true
	// A build has the environment's time limit. On a busy machine without KVM, javac takes over a minute.
	input := object{"id": name, "poolSize": 0, "resources": p.resources(), "defaultTimeLimit": 600}
	if s.Image != "" {
		input["image"] = s.Image
	}
	if s.Isolation != "" {
		input["isolation"] = s.Isolation
	}
	s.Put(t, input)
}

// came runs a program and returns what comes.
func (s *Suite) came(t testing.TB, p Program) Came {
	t.Helper()
	if len(p.Limits) > 0 {
		return s.limited(t, p)
	}
	dir := t.TempDir()
	label := fmt.Sprint("program=", filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
	arguments := []string{"run", "--server", s.Address, "--env", s.environment(p), "--label", label}
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(p.Files[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Run) == 0 || name != p.Run[0] {
			arguments = append(arguments, "--file", name)
		}
	}
	for name, value := range p.Variables {
		arguments = append(arguments, "--variable", name+"="+value)
	}
	if p.Stdin != nil {
		arguments = append(arguments, "--stdin")
	}
	if p.TimeLimit != 0 {
		arguments = append(arguments, "--time-limit", strconv.Itoa(p.TimeLimit))
	}
	if arguments = append(arguments, p.Run...); p.Shell != "" {
		arguments = append(arguments, "--", "sh", "-c", p.Shell)
	}
	cmd := exec.CommandContext(t.Context(), s.Rockpool, arguments...)
	var out, errs strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	if p.Stdin != nil {
		cmd.Stdin = strings.NewReader(*p.Stdin)
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	came := s.recorded(t, strings.TrimPrefix(label, "program="))
	came.Stdout, came.Stderr = out.String(), bed.WithoutWaitingLine(errs.String())
	if came.Outcome == "" {
		came.Outcome = fmt.Sprint("nothing ran, exit ", cmd.ProcessState.ExitCode())
	}
	return came
}

// An endedExecution execution, as the API returns it.
type endedExecution struct {
	Outcome, Signal, Message, Hint string
	ExitCode                       *int
	Usage                          *struct {
		UserMs, SystemMs, WallMs, PeakMemory, PeakProcesses *float64
	}
}

const endedFields = `outcome signal message hint exitCode usage { userMs systemMs wallMs peakMemory peakProcesses }`

// came returns what the server recorded, without output.
func (e endedExecution) came() Came {
	c := Came{Outcome: e.Outcome, Signal: e.Signal, Message: e.Message, Hint: e.Hint, ExitCode: e.ExitCode, PeakMiB: -1, Processes: -1}
	if u := e.Usage; u != nil {
		c.CPUMs, c.WallMs = *u.UserMs+*u.SystemMs, *u.WallMs
		if u.PeakMemory != nil {
			c.PeakMiB = *u.PeakMemory / (1 << 20)
		}
		if u.PeakProcesses != nil {
			c.Processes = *u.PeakProcesses
		}
	}
	return c
}

// recorded returns what the server recorded of a labelled program and its build.
func (s *Suite) recorded(t testing.TB, label string) (came Came) {
	t.Helper()
	var out struct {
		Executions struct{ Nodes []endedExecution }
	}
	s.Call(t, `query($label: String!) { executions(labels: [{name: "program", value: $label}]) { nodes { `+endedFields+` } } }`, object{"label": label}, &out)
	for _, e := range out.Executions.Nodes {
		before := came
		came = e.came()
		came.CPUMs, came.WallMs = came.CPUMs+before.CPUMs, came.WallMs+before.WallMs
	}
	return came
}

// limited runs a program with limits of its own, which rockpool run can't set.
func (s *Suite) limited(t testing.TB, p Program) Came {
	t.Helper()
	runner := s.Claim(t, s.environment(p))
	var files []object
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		files = append(files, object{"path": name, "text": p.Files[name]})
	}
	var wrote struct{ UpdateFiles struct{ Failed []object } }
	s.Call(t, `mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { failed { path } } }`, object{"in": object{"runnerId": runner, "write": files}}, &wrote)
	if len(wrote.UpdateFiles.Failed) > 0 {
		t.Fatalf("files weren't written: %v", wrote.UpdateFiles.Failed)
	}
	execution := s.Start(t, object{"runnerId": runner, "shell": p.Shell, "limits": p.Limits, "workingDirectory": "/workspace"})
	result := s.Await(t, execution)
	var out struct{ Execution endedExecution }
	s.Call(t, `query($id: ID!) { execution(id: $id) { `+endedFields+` } }`, object{"id": execution}, &out)
	came := out.Execution.came()
	came.Stdout, came.Stderr = result.Stream("STDOUT"), result.Stream("STDERR")
	return came
}
