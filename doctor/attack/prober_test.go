package attack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/need"
)

// With the machine's own rights, its attack on a link would take the machine's network down. The test gives it no
// command: without the refusal it would only print its usage.
func TestProberRefusesToRunOutsideASandbox(t *testing.T) {
	need.Program(t)
	ids, err := os.ReadFile("/proc/self/uid_map")
	var has [2]unix.CapUserData
	err = errors.Join(err, unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &has[0]))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295" || has[0].Effective&(1<<unix.CAP_SYS_MODULE) == 0 {
		need.Lacks(t, "the initial user namespace, or the right to load modules")
	}
	program, err := Prober()
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "prober")
	if err := os.WriteFile(at, program, 0o700); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), at).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(said), "outside a sandbox") {
		t.Errorf("got %v, %q; want exit code 2 and a refusal", err, said)
	}
}
