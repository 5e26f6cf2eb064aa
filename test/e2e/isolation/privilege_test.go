package isolation

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/sandboxtest"
	"github.com/rockpool/rockpool/test/wait"
)

// serverUser is a user id that nothing else on the machine uses.
const serverUser = "61234"

// A separation is a server with a user of its own, and its helper, which runs as root.
type separation struct {
	t       testing.TB
	program string // in a place where that user can execute it
	data    string
	user    string // the server's, a number
	helper  *exec.Cmd
	said    bytes.Buffer
}

func newSeparation(t testing.TB) *separation {
	t.Helper()
	return newSeparationOf(t, serverUser)
}

func newSeparationOf(t testing.TB, user string) *separation {
	t.Helper()
	dir, err := os.MkdirTemp("", "rp-privilege-") // other users can't enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("HOME", dir) // that user can't read root's
	s := &separation{t: t, user: user, program: filepath.Join(dir, "rockpool"), data: filepath.Join(dir, "data")}
	for _, line := range [][]string{
		{"chmod", "755", dir}, {"install", "-m", "755", bed.Rockpool(t), s.program}, {"install", "-d", "-m", "700", "-o", user, s.data},
	} {
		if out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", line, err, out)
		}
	}
	t.Cleanup(func() {
		s.endHelper(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("the helper said: %s", s.said.String())
		}
	})
	return s
}

func (s *separation) socket() string { return s.data + ".sock" }

// startHelper starts a helper with the privileges of its unit.
func (s *separation) startHelper(args ...string) {
	s.t.Helper()
	line := sandboxtest.AsUnit(s.t, "rockpool-helper.service", append([]string{
		s.program, "helper", "--user", s.user, "--socket", s.socket(), "--state", s.data + ".helper", "--data", s.data, "--cgroup-parent", bed.CgroupsOf(s.data),
	}, args...)...)
	s.helper = exec.Command(line[0], line[1:]...)
	s.helper.Stderr = &s.said
	if err := s.helper.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *separation) endHelper(signal syscall.Signal) {
	if s.helper == nil {
		return
	}
	_ = s.helper.Process.Signal(signal)
	_ = s.helper.Wait()
	s.helper = nil
}

// asUser returns a command line that runs another one as the server's user, without privileges and
// any way to gain some.
func (s *separation) asUser(line ...string) []string {
	return append([]string{"setpriv", "--reuid", s.user, "--regid", s.user, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", s.program}, line...)
}

func (s *separation) serve(args ...string) *bed.Process {
	s.t.Helper()
	line := s.asUser(append([]string{"serve", "--data", s.data, "--sandbox-helper", s.socket()}, args...)...)
	return bed.Serve(s.t, s.data, line[0], line[1:]...)
}

// groupsOf returns a runner's cgroups.
func (s *separation) groupsOf(runner string) (found []string) {
	trees, err := cgroup.Mounted()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, tree := range trees {
		at := filepath.Join(tree.Mount, bed.CgroupsOf(s.data), runner)
		if _, err := os.Stat(at); err == nil {
			found = append(found, at)
		}
	}
	return found
}

// TestE2EServerWithoutPrivileges runs the server as a user without privileges, checks its
// functions, and kills it and its helper in turn.
func TestE2EServerWithoutPrivileges(t *testing.T) {
	s := newSeparation(t)
	line := s.asUser("serve", "--data", s.data, "--listen", "127.0.0.1:0")
	if _, errout, code := bed.RunProgram(t, nil, line[0], line[1:]...); code != 125 || !strings.Contains(errout, "--sandbox-helper") {
		t.Errorf("without root and a helper it says %q, and %d", errout, code)
	}
	s.startHelper()
	p := s.serve()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	const none = "\t0000000000000000\n"
	for _, want := range []string{"Uid:\t61234\t61234\t61234\t61234\n", "CapPrm:" + none, "CapEff:" + none, "CapBnd:" + none, "CapAmb:" + none, "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the server isn't %q:\n%s", want, status)
		}
	}
	s.work(p)
	s.image(p)

	// Runners outlive the server, and the next one adopts all of them.
	runner := p.ClaimUnreleased(t, "shell")
	script, want := bed.InHalves(1000)
	r := &bed.Reader{ID: p.Start(t, object{"runnerId": runner, "shell": script})}
	before := p.Full(t, "shell", 2)
	registry := newLockedRegistry(t)
	reference := registry.Push(busyboxImage(t, "1"), "busybox:1")
	registry.hold(t, busyboxImage(t, "1"))
	p.Change(t, object{"id": "pulled", "image": reference, "poolSize": 0})
	wait.For(t, "half of an image is unpacked", func() bool {
		half, err := filepath.Glob(s.data + "/local/images/tmp/pull-*/root/bin/busybox")
		return err == nil && len(half) == 1
	})
	p.End(t, syscall.SIGKILL, false)
	registry.held.Store("")
	p = s.serve()
	if after := p.RunnersOf(t, "shell"); !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) || after[runner].State != "CLAIMED" {
		t.Errorf("the runners are %+v, and were %+v", after, before)
	}
	p.Wake(t, 1)
	if r.Read(t.Context(), p.Bed); r.Got.String() != want || r.Lost != 0 || r.End == nil || r.End.Outcome != "EXITED" {
		t.Errorf("%d bytes, %d lost, of %d; %+v", r.Got.Len(), r.Lost, len(want), r.End)
	}

	wait.For(t, "the image exists, and nothing is left of the killed pull", func() bool {
		left, err := os.ReadDir(s.data + "/local/images/tmp")
		return err == nil && len(left) == 0 && imageOf(t, p.Bed, "pulled").Pool.Image.State == "READY"
	})
	p.Call(t, `mutation { deleteEnvironment(input: {id: "pulled"}) { deleted } }`, nil, nil)

	// The same for the helper. Without a helper nothing is made or removed, and the server reports it.
	s.endHelper(syscall.SIGKILL)
	if got := p.Shell(t, runner, "echo still here"); got.Stream("STDOUT") != "still here\n" {
		t.Errorf("without a helper: %+v", got)
	}
	p.Call(t, `mutation { putEnvironment(input: {id: "shell", poolSize: 3}) { created } }`, nil, nil)
	wait.For(t, "the pool says what is missing", func() bool {
		var out struct {
			Environment struct{ Pool struct{ Reason string } }
		}
		p.Call(t, `{ environment(id: "shell") { pool { reason } } }`, nil, &out)
		return strings.Contains(out.Environment.Pool.Reason, "helper")
	})
	s.startHelper()
	p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": runner}, nil)
	wait.For(t, "what the killed helper made is removed", func() bool { return len(s.groupsOf(runner)) == 0 })
	p.Full(t, "shell", 3)
	p.End(t, syscall.SIGTERM, false)
	p.WantNothingLeft(t)
	if left, err := os.ReadDir(s.data + ".helper/held"); err != nil || len(left) > 0 {
		t.Errorf("the helper still has %v (%v)", left, err)
	}
	s.endHelper(syscall.SIGTERM)
	if left := s.groupsOf(""); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// image makes a runner from an image whose files have many owners.
func (s *separation) image(p *bed.Process) {
	t := s.t
	t.Helper()
	registry := imagetest.NewRegistry(t, nil)
	layers := append(imagetest.Busybox(t),
		imagetest.Entry{Header: tar.Header{Name: "srv/users", Mode: 0o600, Uid: 4321, Gid: 4321}, Content: []byte("mine\n")},
		imagetest.Entry{Header: tar.Header{Name: "srv/roots", Mode: 0o600}, Content: []byte("root's\n")},
		imagetest.Entry{Header: tar.Header{Name: "srv/others", Mode: 0o604, Uid: 70, Gid: 71}, Content: []byte("other's\n")},
	)
	reference := registry.Push(imagetest.Image(t, v1.Config{User: "4321:4321"}, imagetest.Layer(t, layers...)), "x:1")
	p.Call(t, `mutation($image: String!) { putEnvironment(input: {id: "image", image: $image, poolSize: 1}) { created } }`, object{"image": reference}, nil)
	runner := p.ClaimUnreleased(t, "image")
	got := p.Shell(t, runner, "id -u; cat /srv/users /srv/others; cat /srv/roots 2>/dev/null || echo closed; stat -c %u:%g:%a / /srv/users /srv/roots /srv/others")
	if want := "1000\nmine\nother's\nclosed\n0:0:755\n1000:1000:600\n0:0:600\n70:71:604\n"; got.Stream("STDOUT") != want {
		t.Errorf("in a runner made from an image %q, want %q: %+v", got.Stream("STDOUT"), want, got)
	}
	// On the machine they belong to nobody.
	found, err := filepath.Glob(s.data + "/local/images/sha256-*/root/srv/*")
	if err != nil || len(found) != 3 {
		t.Fatalf("%q, %v", found, err)
	}
	for _, file := range found {
		var info syscall.Stat_t
		if err := syscall.Stat(file, &info); err != nil || info.Uid < spec.ImageOwners {
			t.Errorf("%s belongs to %d (%v)", file, info.Uid, err)
		}
	}
	// A pull that fails half way leaves nothing.
	p.Call(t, `mutation($image: String!) { putEnvironment(input: {id: "broken", image: $image, poolSize: 0}) { created } }`, object{"image": registry.Push(lying(t), "lying:1")}, nil)
	wait.For(t, "the image that isn't what it says is refused, and deleted", func() bool {
		left, err := os.ReadDir(s.data + "/local/images/tmp")
		return err == nil && len(left) == 0 && imageReason(t, p.Bed, "broken") != ""
	})
	if why := imageReason(t, p.Bed, "broken"); !strings.Contains(why, "digest") {
		t.Errorf("the image failed: %s", why)
	}
	p.Call(t, `mutation { deleteEnvironment(input: {id: "broken"}) { deleted } }`, nil, nil)
	p.Call(t, `mutation { deleteEnvironment(input: {id: "image", endClaimed: true}) { deleted } }`, nil, nil)
}

// lying returns an image whose second layer isn't the one in its configuration.
func lying(t testing.TB) v1.Image {
	t.Helper()
	image := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("a/b", "1")), imagetest.Layer(t, imagetest.File("c", "2")))
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config.RootFS.DiffIDs[1].Hex = strings.Repeat("2", 64)
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

// work runs programs, also into limits, and transfers files in and out.
func (s *separation) work(p *bed.Process) {
	t := s.t
	t.Helper()
	p.Call(t, `mutation { putEnvironment(input: {id: "small", poolSize: 0, resources: {memoryMiB: 64, processes: 32}}) { created } }`, nil, nil)
	runner := p.ClaimUnreleased(t, "small")
	if got := p.Shell(t, runner, "id -u; echo kept > file"); got.Stream("STDOUT") != "1000\n" {
		t.Errorf("%+v", got)
	}
	local := filepath.Join(t.TempDir(), "file")
	p.Works(t, "runner", "cp", runner+":file", local)
	if text, err := os.ReadFile(local); err != nil || string(text) != "kept\n" {
		t.Errorf("%q, %v", text, err)
	}
	for script, want := range map[string]string{
		"head -c 400000000 /dev/zero | tail":                                                      "MEMORY_LIMIT",
		"for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5; do sleep 1000 & done; done; wait": "PROCESS_LIMIT",
	} {
		if got := p.Shell(t, runner, script); string(got.Outcome) != want {
			t.Errorf("%s: %s %s", script, got.Outcome, got.Message)
		}
	}
}
