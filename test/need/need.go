// Package need selects tests by what they need in addition to Go, a C compiler and an ordinary
// user. The variable ROCKPOOL_TEST names what a run provides, for example "sandbox nomad"; `make
// test` and its phases set it. If a run doesn't provide what a test needs, the test is skipped,
// with the command that runs it. If a run provides it but the machine lacks it, the test fails.
package need

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/artifacts"
)

// commands lists, for each provision, the command that runs the tests that need it.
var commands = map[string]string{
	"sandbox":   "make test",
	"program":   "make test",
	"nomad":     "make test-nomad",
	"gvisor":    "make test-gvisor",
	"attack":    "make test-attack",
	"chaos":     "make test-chaos",
	"languages": "make test-languages",
}

// Sandboxes marks a test that makes real sandboxes, mounts or cgroups, or uses a
// program that scripts/needs installs for make test.
func Sandboxes(t testing.TB) { t.Helper(); needs(t, "sandbox") }

// Program marks a test that runs bin/rockpool as a process, or reads the files that make build
// embeds. The phase race leaves such tests out: the race detector doesn't see other processes.
func Program(t testing.TB) { t.Helper(); needs(t, "program") }

// Nomad marks a test that uses a real Nomad.
func Nomad(t testing.TB) { t.Helper(); needs(t, "nomad") }

// GVisor marks a test that uses gVisor's runsc.
func GVisor(t testing.TB) { t.Helper(); needs(t, "gvisor") }

// Attacks marks a test that takes minutes, because it runs the whole attack corpus.
func Attacks(t testing.TB) { t.Helper(); needs(t, "attack") }

// Chaos marks a test that kills servers for some time.
func Chaos(t testing.TB) { t.Helper(); needs(t, "chaos") }

// Languages marks a test that runs the programs of all languages that this machine has.
func Languages(t testing.TB) { t.Helper(); needs(t, "languages") }

// Provides reports whether ROCKPOOL_TEST names a provision.
func Provides(provision string) bool {
	return slices.Contains(strings.Fields(os.Getenv("ROCKPOOL_TEST")), provision)
}

func needs(t testing.TB, provision string) {
	t.Helper()
	if !Provides(provision) {
		record(t, "skipped")
		t.Skipf("needs %s: %s", provision, commands[provision])
	}
	t.Cleanup(func() {
		if t.Skipped() { // for another reason
			record(t, "skipped")
		} else {
			record(t, "ran")
		}
	})
	if os.Geteuid() != 0 {
		t.Fatalf("tests that need %s run as root: sudo env PATH=\"$PATH\" %s", provision, commands[provision])
	}
}

// Lacks fails a test if the machine lacks something although this run provides sandboxes. Otherwise
// it skips the test. It also skips it in the virtual machine of make test-vm, which has few
// programs and uses those in ROCKPOOL_PROGRAMS.
func Lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if Provides("sandbox") && os.Getenv("ROCKPOOL_PROGRAMS") == "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// record adds the test to the list of skipped tests, or of those that ran, among the artifacts. At
// the end of a complete run scripts/test compares both: each test must have run in some phase.
func record(t testing.TB, as string) {
	t.Helper()
	if artifacts.Root() == "" {
		return
	}
	line := artifacts.Package(t) + " " + t.Name() + "\n"
	f, err := os.OpenFile(filepath.Join(artifacts.Root(), as+".list"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Errorf("record that a test %s: %v", as, err)
	}
}
