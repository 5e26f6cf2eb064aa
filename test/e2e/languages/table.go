package languages

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// Summary returns a table of the languages, and the programs that didn't run, don't pass yet or
// differ.
func (s *Suite) Summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := map[string]map[string]int{} // by language and column
	others := map[string][]string{}     // programs, by column and reason
	for _, r := range s.results {
		if rows[r.Language] == nil {
			rows[r.Language] = map[string]int{}
		}
		column, why := r.how, ""
		switch r.how {
		case "passed", "failed":
		case "pending":
			why = r.Pending
		case "differs":
			why = r.On[s.Name].Reason
		default:
			column, why = "skipped", r.how
		}
		rows[r.Language]["programs"]++
		rows[r.Language][column]++
		if column != "passed" {
			others[column+": "+why] = append(others[column+": "+why], r.ID())
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%-16s %9s %7s %8s %8s %7s %8s\n", s.Name, "language", "programs", "passed", "differs", "pending", "failed", "skipped")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		fmt.Fprintf(&b, "%-16s %9d %7d %8d %8d %7d %8d\n", name, r["programs"], r["passed"], r["differs"], r["pending"], r["failed"], r["skipped"])
	}
	for _, why := range slices.Sorted(maps.Keys(others)) {
		slices.Sort(others[why])
		fmt.Fprintf(&b, "%s %s: %s\n", s.Name, why, strings.Join(others[why], ", "))
	}
	return b.String()
}

// Times returns a table of the first programs of the languages: the least CPU and wall time of two
// runs in fresh runners, and of two on the bare machine. It is evidence; no test asserts a time.
func (s *Suite) Times(t testing.TB, all []Program) string {
	t.Helper()
	s.look(t, all)
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %10s %10s %10s %10s %7s\n%-16s %10s %10s %10s %10s %7s\n", "hello world", "CPU ms", "", "wall ms", "", "CPU",
		"", "runner", "bare", "runner", "bare", "ratio")
	for _, p := range all {
		if !p.Hello || slices.ContainsFunc(p.Needs, func(tool string) bool { return !s.has[tool] }) {
			continue
		}
		s.prepare(t, p)
		inside, bare := Came{CPUMs: 1e9, WallMs: 1e9}, Came{CPUMs: 1e9, WallMs: 1e9}
		for range 2 {
			inside, bare = inside.least(s.came(t, p)), bare.least(s.bare(t, p))
		}
		fmt.Fprintf(&b, "%-16s %10.0f %10.0f %10.0f %10.0f %7.2f\n", p.Language, inside.CPUMs, bare.CPUMs, inside.WallMs, bare.WallMs, inside.CPUMs/max(bare.CPUMs, 1))
	}
	return b.String()
}

func (c Came) least(other Came) Came {
	return Came{CPUMs: min(c.CPUMs, other.CPUMs), WallMs: min(c.WallMs, other.WallMs)}
}

// bare measures a program's build and run on this machine, outside of a runner, on as many processors as a runner has
// by default: one.
func (s *Suite) bare(t testing.TB, p Program) (c Came) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range p.Files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commands := [][]string{{"sh", "-c", p.Shell}}
	if len(p.Run) > 0 {
		recipe, _ := language.Default().ByFile(p.Run[0])
		program := recipe.Program(p.Run[0], []byte(p.Files[p.Run[0]]))
		program.Args = p.Run[1:]
		commands = [][]string{recipe.BuildCommand(program), recipe.RunCommand(program)}
	}
	for _, command := range commands {
		if len(command) == 0 {
			continue
		}
		if strings.HasPrefix(command[0], "./") {
			command[0] = filepath.Join(dir, command[0])
		}
		cmd := exec.CommandContext(t.Context(), "taskset", append([]string{"-c", "0", "env", "PATH=" + runtime.MachinePath}, command...)...)
		cmd.Dir = dir
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s on the bare machine: %v\n%s", p.ID(), err, out)
		}
		c.WallMs += float64(time.Since(began).Microseconds()) / 1000
		c.CPUMs += float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Microseconds()) / 1000
	}
	return c
}
