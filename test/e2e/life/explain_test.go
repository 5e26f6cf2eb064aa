package life

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/test/artifacts"
)

// A failedTest is a test that fails without failing the test that runs it.
type failedTest struct {
	testing.TB
	said     strings.Builder
	cleanups []func()
}

func (*failedTest) Failed() bool { return true }

func (f *failedTest) Name() string { return f.TB.Name() + "/failed" }

func (f *failedTest) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }

func (f *failedTest) Logf(format string, a ...any) { fmt.Fprintf(&f.said, format, a...) }

// end runs the cleanups and returns what they printed.
func (f *failedTest) end() string {
	for _, do := range slices.Backward(f.cleanups) {
		do()
	}
	return f.said.String()
}

// TestE2EFailuresExplainThemselves makes tests fail on the shared server, and on one in a process,
// and reads what they print.
func TestE2EFailuresExplainThemselves(t *testing.T) {
	data := bed.DataDir(t)
	t.Setenv("ROCKPOOL_ARTIFACTS", t.TempDir())
	bed.Open(t)
	for name, test := range map[string]struct {
		serving func(t testing.TB) bed.Bed
		logs    string
	}{
		"shared":  {bed.Open, "during the test"},
		"process": {func(t testing.TB) bed.Bed { return bed.ServeBinary(t, data).Bed }, "the scheduler has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			fmt.Fprintln(&bed.SharedServer.Log, "before the test")
			failed := &failedTest{TB: t}
			runner := test.serving(failed).Claim(failed, "shell")
			fmt.Fprintln(&bed.SharedServer.Log, "during the test")
			said := failed.end()
			path := filepath.Join(artifacts.Root(), artifacts.Package(t), strings.ReplaceAll(failed.Name(), "/", "-"), "explanation.txt")
			kept, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"log of server 1 of 1, since the test began", test.logs, "task events of runner " + runner, " PLACED ", "\nload "} {
				if !strings.Contains(said, want) || !strings.Contains(string(kept), want) {
					t.Errorf("no %q in\n%s\nor in what is kept:\n%s", want, said, kept)
				}
			}
			if strings.Contains(string(kept), "before the test") || !strings.HasSuffix(said, "kept in "+path+"\n") {
				t.Errorf("it said\n%s", said)
			}
		})
	}
}
