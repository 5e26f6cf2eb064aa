package isolation

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/test/executable"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// unit reads the settings of the systemd unit.
func unit(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile(bed.Source(t, "packaging/rockpool.service"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			all[key] = value
		}
	}
	return all
}

// TestSystemdAcceptsTheUnit verifies the unit with systemd itself.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	text, err := os.ReadFile(bed.Source(t, "packaging/rockpool.service"))
	if err != nil {
		t.Fatal(err)
	}
	need.Sandboxes(t)
	program := strings.Fields(unit(t)["ExecStart"])
	// The unit isn't installed here.
	path := filepath.Join(t.TempDir(), "rockpool.service")
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), program[0], "/bin/true", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze, of Debian's package systemd, says %v: %s", err, out)
	}
}

// TestSystemdAcceptsTheUnitsWithoutPrivileges verifies the helper's units, and the server's unit
// with the drop-in that removes its privileges.
func TestSystemdAcceptsTheUnitsWithoutPrivileges(t *testing.T) {
	need.Sandboxes(t)
	dir := t.TempDir()
	for from, to := range map[string]string{
		"rockpool.service": "rockpool.service", "rockpool-helper.service": "rockpool-helper.service", "rockpool-helper.socket": "rockpool-helper.socket",
		"rockpool-unprivileged.conf": "rockpool.service.d/unprivileged.conf",
	} {
		text, err := os.ReadFile(bed.Source(t, "packaging/"+from))
		if err != nil {
			t.Fatal(err)
		}
		// The program isn't installed here, and the machine doesn't have the user.
		for _, missing := range [][2]string{{"/usr/local/bin/rockpool", "/bin/true"}, {"=rockpool\n", "=daemon\n"}} {
			text = []byte(strings.ReplaceAll(string(text), missing[0], missing[1]))
		}
		at := filepath.Join(dir, to)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range []string{"rockpool.service", "rockpool-helper.service", "rockpool-helper.socket"} {
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", filepath.Join(dir, unit))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze, of Debian's package systemd, says of %s %v: %s", unit, err, out)
		}
	}
}

// A service imitates systemd's environment for a server: a cgroup of its own in systemd's
// hierarchies, and a socket for notifications.
type service struct {
	t       testing.TB
	program string // outside of any home directory
	groups  []string
	socket  *net.UnixConn
	unit    map[string]string
}

func newService(t testing.TB) *service {
	t.Helper()
	own := []string{"name=systemd", "cpu", "cpuacct", "memory", "pids"} // systemd's, or delegated by the unit
	trees, err := cgroup.Mounted()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, program: filepath.Join(t.TempDir(), "rockpool"), unit: unit(t)}
	executable.Copy(t, bed.Rockpool(t), s.program)
	name := fmt.Sprintf("rockpool/test-service-%d/rockpool.service", os.Getpid())
	for _, tree := range trees {
		if tree.V2 || slices.ContainsFunc(tree.Controllers, func(c string) bool { return slices.Contains(own, c) }) {
			s.groups = append(s.groups, filepath.Join(tree.Mount, name))
		}
	}
	t.Cleanup(func() {
		for _, group := range s.groups {
			_ = os.Remove(group)
			_ = os.Remove(filepath.Dir(group))
		}
	})
	path := filepath.Join(t.TempDir(), "notify")
	if s.socket, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return s
}

// start starts the server in a new cgroup of the service, with the unit's limits and mounts.
func (s *service) start(data string, args ...string) *bed.Process {
	s.t.Helper()
	var join strings.Builder
	for _, group := range s.groups {
		if err := os.MkdirAll(group, 0o755); err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&join, "echo $$ > '%s/cgroup.procs' && ", group)
	}
	const enter = `umask "$1" && shift && exec unshare --mount --propagation slave sh -c "$@"`
	const confine = `for at in /usr /etc /boot; do mount --bind $at $at && mount -o remount,bind,ro $at || exit; done
		for at in /home /root; do mount -t tmpfs -o mode=0 none $at || exit; done
		exec setpriv --no-new-privs --bounding-set "$0" "$@"`
	capabilities := "-all"
	for name := range strings.FieldsSeq(s.unit["CapabilityBoundingSet"]) {
		capabilities += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	line := []string{"-c", join.String() + enter, "sh", s.unit["UMask"], confine, capabilities, s.program, "serve", "--data", data}
	p := bed.Serve(s.t, data, "sh", append(line, args...)...)
	s.wantNotification("READY=1")
	return p
}

// wantNotification waits for a notification of the server.
func (s *service) wantNotification(want string) {
	s.t.Helper()
	buffer := make([]byte, 4096)
	if err := s.socket.SetReadDeadline(time.Now().Add(wait.Limit)); err != nil {
		s.t.Fatal(err)
	}
	if n, err := s.socket.Read(buffer); err != nil || !strings.HasPrefix(string(buffer[:n]), want) {
		s.t.Errorf("the server notified %q, %v; want %s", buffer[:n], err, want)
	}
}

// wantAlone fails the test unless exactly the server and its maker are in the service's cgroup. It
// must be a leaf: version 2 allows processes only there.
func (s *service) wantAlone(p *bed.Process) {
	s.t.Helper()
	for _, group := range s.groups {
		server := p.Cmd.Process.Pid
		var pids []int
		wait.For(s.t, "no helper is at work but the maker", func() bool {
			var err error
			if pids, err = cgroup.Processes(group); err != nil {
				s.t.Fatal(err)
			}
			makers := bed.Makers(p.Data)
			pids = slices.DeleteFunc(pids, func(pid int) bool { return slices.Contains(makers, pid) })
			return len(makers) <= 1 && len(pids) == 1
		})
		if pids[0] != server {
			s.t.Errorf("%s holds %d, not the server (%d)", group, pids[0], server)
		}
		entries, err := os.ReadDir(group)
		if err != nil || slices.ContainsFunc(entries, os.DirEntry.IsDir) {
			s.t.Errorf("%s isn't a leaf (%v)", group, err)
		}
	}
}

// collect removes the cgroups, as systemd does after a service's end. It fails the test if they are
// still in use.
func (s *service) collect() {
	s.t.Helper()
	for _, group := range s.groups {
		var err error
		wait.For(s.t, "nothing is left in the service's group", func() bool {
			err = os.Remove(group)
			return err == nil
		})
	}
}

// TestE2EServiceRestartKeepsRunners runs the server as systemd would run the unit, as far as
// possible without systemd: in the same cgroups, with the same limits, and killed as
// KillMode=process does. Its runners outlive it.
func TestE2EServiceRestartKeepsRunners(t *testing.T) {
	data := bed.DataDir(t)
	s := newService(t)
	for key, value := range map[string]string{"KillMode": "process", "Type": "notify", "NoNewPrivileges": "yes", "ProtectSystem": "full", "ProtectHome": "yes"} {
		if s.unit[key] != value {
			t.Errorf("%s of the unit is %q; tested is %s", key, s.unit[key], value)
		}
	}
	p := s.start(data)
	runner := p.ClaimUnreleased(t, "shell")
	script, want := bed.InHalves(1000)
	r := &bed.Reader{ID: p.Start(t, object{"runnerId": runner, "shell": script})}
	before := p.Full(t, "shell", 2)
	s.wantAlone(p)

	p.End(t, syscall.SIGKILL, false)
	s.collect()
	p = s.start(data, "--on-stop", "keep")
	s.wantAlone(p)
	if after := p.RunnersOf(t, "shell"); !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) || after[runner].State != "CLAIMED" {
		t.Errorf("the runners are %+v, and were %+v", after, before)
	}
	p.Wake(t, 1)
	if r.Read(t.Context(), p.Bed); r.Got.String() != want || r.Lost != 0 || r.End == nil || r.End.Outcome != "EXITED" {
		t.Errorf("%d bytes, %d lost, of %d; %+v", r.Got.Len(), r.Lost, len(want), r.End)
	}

	p.End(t, syscall.SIGTERM, false)
	s.wantNotification("STOPPING=1")
	s.collect()
	p = s.start(data)
	if after := p.RunnersOf(t, "shell"); after[runner].State != "CLAIMED" {
		t.Errorf("after a stop the runners are %+v", after)
	}
	p.Finish(t)
}
