// Package sandboxtest builds the programs for tests of sandboxes from the current sources. On a
// machine that can't build, it takes them from the directory that ROCKPOOL_PROGRAMS names.
package sandboxtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/repository"
)

// Agent returns the agent's binary.
func Agent(t testing.TB) []byte {
	t.Helper()
	return read(t, &agent, "agent", "./agent/cmd", "CGO_ENABLED=0", "-trimpath", "-ldflags=-s -w")
}

// Helper returns the binary of rockpool-sandbox.
func Helper(t testing.TB) []byte {
	t.Helper()
	return read(t, &helper, "rockpool-sandbox", "./local/sandbox/cmd", "CGO_ENABLED=1", "-trimpath", "-ldflags=-s -w -extldflags=-static", "-tags", "netgo osusergo")
}

// agent, helper and gvisor are the programs of this test process. gvisor's data is a path.
var agent, helper, gvisor program

// A program is built once per test process.
type program struct {
	once sync.Once
	data []byte
	err  error
	said []byte
}

// read returns a program, which it builds on first use or takes from ROCKPOOL_PROGRAMS. environment
// is one more variable for the build. After a failure, each caller's test fails.
func read(t testing.TB, p *program, name, source, environment string, flags ...string) []byte {
	t.Helper()
	p.once.Do(func() {
		if built := os.Getenv("ROCKPOOL_PROGRAMS"); built != "" {
			p.data, p.err = os.ReadFile(filepath.Join(built, name))
			return
		}
		var dir string
		if dir, p.err = os.MkdirTemp("", "rp-local-"); p.err != nil {
			return
		}
		defer os.RemoveAll(dir)
		out := filepath.Join(dir, "program")
		cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), source)...)
		cmd.Dir = sources()
		cmd.Env = append(os.Environ(), environment)
		if p.said, p.err = cmd.CombinedOutput(); p.err == nil {
			p.data, p.err = os.ReadFile(out)
		}
	})
	if p.err != nil {
		t.Fatalf("build %s: %v\n%s", source, p.err, p.said)
	}
	return p.data
}

// GVisor returns the path of gVisor's runsc. Its first build takes some minutes.
func GVisor(t testing.TB) string {
	t.Helper()
	need.GVisor(t)
	gvisor.once.Do(func() {
		cmd := exec.Command(filepath.Join(sources(), "scripts/gvisor"))
		var said bytes.Buffer
		cmd.Stderr = &said
		gvisor.data, gvisor.err = cmd.Output()
		gvisor.said = said.Bytes()
	})
	if gvisor.err != nil {
		t.Fatalf("build gVisor: %v\n%s", gvisor.err, gvisor.said)
	}
	return strings.TrimSpace(string(gvisor.data))
}

// AsUnit returns a command line that runs another one with the privileges that a unit in packaging
// gives its service.
func AsUnit(t testing.TB, unit string, line ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sources(), "packaging", unit))
	if err != nil {
		t.Fatal(err)
	}
	_, may, _ := strings.Cut(string(text), "\nCapabilityBoundingSet=CAP_")
	may, _, found := strings.Cut(may, "\n")
	if !found {
		t.Fatalf("%s has no CapabilityBoundingSet", unit)
	}
	set := "-all,+" + strings.ReplaceAll(strings.ToLower(may), " cap_", ",+")
	return append([]string{"setpriv", "--inh-caps=-all", "--no-new-privs", "--bounding-set=" + set}, line...)
}

// sources returns the module's directory, or "" if there is only a test binary.
func sources() string {
	root, _ := repository.Root()
	return root
}
