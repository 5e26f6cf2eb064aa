package isolation

import (
	"archive/tar"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// ordinary returns a command line that runs another one as a user that isn't root and has no
// subordinate ids.
func (s *separation) ordinary(line ...string) []string {
	return append([]string{"setpriv", "--reuid", s.user, "--regid", s.user, "--clear-groups", s.program}, line...)
}

// processes returns the running processes of the server's user on the machine.
func (s *separation) processes() (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), "\nUid:\t"+s.user+"\t") && !strings.Contains(string(text), "State:\tZ") {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

// TestE2EWithoutRoot runs the server as an ordinary user, without a cgroup and other user ids. It
// reports what is missing, and continues once that is accepted.
func TestE2EWithoutRoot(t *testing.T) {
	s := newSeparation(t)
	if text, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(text)) == "0" {
		t.Fatalf("no user namespaces (%v)", err)
	}
	line := s.ordinary("serve", "--data", s.data, "--listen", "127.0.0.1:0")
	if _, errout, code := bed.RunProgram(t, nil, line[0], line[1:]...); code != 125 || !strings.Contains(errout, "limits of memory, processes, processor time") || !strings.Contains(errout, "--accept-missing-limits") {
		t.Errorf("without a control group it says %q, and %d", errout, code)
	}

	line = s.ordinary("serve", "--data", s.data, "--accept-missing-limits", "--compat", "poseidon")
	p := bed.Serve(t, s.data, line[0], line[1:]...)
	const lost = "without root, runners have less isolation: limits of memory, processes, processor time"
	var health struct {
		Health struct {
			Components []struct{ Name, Status, Message string }
		}
	}
	p.Call(t, `{ health { components { name status message } } }`, nil, &health)
	told := false
	for _, c := range health.Health.Components {
		told = told || c.Name == "cluster" && strings.HasPrefix(c.Message, lost) && strings.Contains(c.Message, "all files: none can be protected")
	}
	if !told {
		t.Errorf("health doesn't say what is lost: %+v", health)
	}

	runner := p.ClaimUnreleased(t, "shell")
	look := `grep -E '^Cap(Prm|Eff|Bnd)|^NoNewPrivs|^Seccomp:' /proc/self/status | cut -f 2 | sort -u | tr '\n' ' '
		unshare -U true 2>/dev/null || echo refused; cat /proc/1/environ 2>/dev/null || echo hidden; kill -9 1; ls ` + "'" + s.data + "'" + ` 2>/dev/null || echo away
		touch /usr/x 2>/dev/null || echo read-only; (setsid sleep 300 &) ; echo kept >file; cat file`
	if got := p.Shell(t, runner, look); got.Stream("STDOUT") != "0000000000000000 1 2 refused\nhidden\naway\nread-only\nkept\n" {
		t.Errorf("%+v", got)
	}
	if got := p.Run(t, object{"runnerId": runner, "shell": "true", "privileged": true}); got.Outcome != "FAILED" {
		t.Errorf("a privileged one: %+v", got)
	}

	// CodeOcean's API protects files where it can. Here they are the program's; the API refuses the option.
	copied := `{"delete": ["./*"], "copy": [{"path": "a/b.sh", "content": "ZWNobyBydW4="}, {"path": "empty/"}]}`
	request, err := http.NewRequestWithContext(t.Context(), "PATCH", p.Address+"/api/v1/runners/"+runner+"/files", strings.NewReader(copied))
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := p.Shell(t, runner, "./a/b.sh; echo changed >a/b.sh && cat a/b.sh; ls; echo kept >file"); response.StatusCode != http.StatusNoContent || got.Stream("STDOUT") != "run\nchanged\na\nempty\n" {
		t.Errorf("the API copied files with %s: %+v", response.Status, got)
	}
	p.Refused(t, `mutation($id: ID!) { updateFiles(input: {runnerId: $id, delete: ["a"], protected: true}) { deleted } }`, object{"id": runner}, runtime.CodeInvalidInput, "protected")

	reference, first := ownedImage(t)
	p.Change(t, object{"id": "image", "image": reference, "poolSize": 1})
	if got := p.Shell(t, p.ClaimUnreleased(t, "image"), lookAround); got.Stream("STDOUT") != "0\n0:0 0:0 755\nnew\nhidden\nread-only\n" {
		t.Errorf("in a container image: %+v", got)
	}
	if left, err := os.ReadDir(filepath.Join(s.data, "local", "images", strings.Replace(first, ":", "-", 1), "root")); err != nil || len(left) == 0 {
		t.Errorf("its files: %v (%v)", left, err)
	}

	// The next server after a kill: programs continue, and can be ended.
	p.End(t, syscall.SIGKILL, false)
	if said := p.Stderr.String(); strings.Count(said, lost) != 1 {
		t.Errorf("at its start it said %q", said)
	}
	p = bed.Serve(t, s.data, line[0], line[1:]...)
	if got := p.Shell(t, runner, "cat file"); got.Stream("STDOUT") != "kept\n" {
		t.Errorf("after a restart: %+v", got)
	}
	p.Release(t, runner)
	s.ends(p)
}

// ends stops a server, which must leave nothing.
func (s *separation) ends(p *bed.Process) {
	t := s.t
	t.Helper()
	p.End(t, syscall.SIGTERM, false)
	wait.For(t, "nothing of it runs", func() bool { return len(s.processes()) == 0 })
	for _, sub := range []string{"state", "runners"} {
		if left, err := os.ReadDir(filepath.Join(s.data, "local", sub)); err != nil || len(left) > 0 {
			t.Errorf("%s: %v (%v)", sub, left, err)
		}
	}
}

// ownedImage returns an image whose files belong to several users, and whose directories not
// everybody may write to. It is in a registry of the test.
func ownedImage(t *testing.T) (reference, digest string) {
	t.Helper()
	of := func(name string, mode int64, uid, gid int, content string) imagetest.Entry {
		return imagetest.Entry{Header: tar.Header{Name: name, Mode: mode, Uid: uid, Gid: gid}, Content: []byte(content)}
	}
	lower := append(imagetest.Busybox(t),
		of("shut/", 0o555, 0, 0, ""), of("shut/old", 0o644, 0, 0, "old"), of("shut/file", 0o755, 5, 6, "x"), of("roots", 0o600, 0, 0, "hidden"),
		imagetest.Kind(tar.TypeChar, "device", ""))
	upper := imagetest.Layer(t, imagetest.File("shut/.wh.old", ""), of("shut/own", 0o600, 70, 70, "new\n"))
	made := imagetest.Image(t, v1.Config{User: "70:70", WorkingDir: "/shut"}, imagetest.Layer(t, lower...), upper)
	return imagetest.NewRegistry(t, nil).Push(made, "owned:tag"), imagetest.Digest(t, made)
}

// lookAround prints what a program sees of ownedImage.
const lookAround = `id -u; echo $(stat -c %u:%g /bin/busybox) $(stat -c '%u:%g %a' file); cat own
	[ -e old ] || [ -e /device ] || echo hidden; touch /new 2>/dev/null || echo read-only`

// TestE2EWithoutRootButWithSubordinateIDs runs the server as an ordinary user with subordinate ids.
// It makes runners of a container image; the image's users own its files.
func TestE2EWithoutRootButWithSubordinateIDs(t *testing.T) {
	if _, err := exec.LookPath("newuidmap"); err != nil {
		need.Lacks(t, "there is no newuidmap here, of Debian's package uidmap")
	}
	known, err := user.Lookup("bin") // a user without other processes
	if err != nil {
		t.Fatal(err)
	}
	const owner = 300_000_000
	given := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(given, fmt.Appendf(nil, "%s:%d:65536\n", known.Username, owner), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newSeparationOf(t, known.Uid)
	// The machine's own files don't list this user's ids.
	ordinary := func(line ...string) []string {
		return append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"`, given}, s.ordinary(line...)...)
	}
	line := ordinary("serve", "--data", s.data, "--accept-missing-limits")
	p := bed.Serve(t, s.data, line[0], line[1:]...)
	reference, digest := ownedImage(t)
	p.Change(t, object{"id": "image", "image": reference, "poolSize": 1})
	runner := p.ClaimUnreleased(t, "image")
	if got := p.Shell(t, runner, lookAround+"; cat /roots 2>/dev/null || echo closed"); got.Stream("STDOUT") != "1000\n0:0 5:6 755\nnew\nhidden\nread-only\nclosed\n" {
		t.Errorf("%+v", got)
	}
	if got := p.Run(t, object{"runnerId": runner, "shell": "id -u; cat /roots", "privileged": true}); got.Stream("STDOUT") != "0\nhidden" {
		t.Errorf("as root: %+v", got)
	}
	root := filepath.Join(s.data, "local", "images", strings.Replace(digest, ":", "-", 1), "root")
	for name, want := range map[string]int{"": owner, "shut/file": owner + 5, "shut/own": owner + tree.User} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != want {
			t.Errorf("%q isn't %d's on the machine: %+v, %v", name, want, info, err)
		}
	}
	s.ends(p)

	// The doctor, whose image has such files too, leaves nothing.
	line = ordinary("doctor", "--json", "--server", "http://127.0.0.1:1", "--data", filepath.Join(s.data, "doctor"))
	out, _, _ := bed.RunProgram(t, nil, line[0], line[1:]...)
	if left, _ := filepath.Glob(filepath.Join(s.data, "doctor*")); len(left) > 0 || !strings.Contains(out, "container images work") {
		t.Errorf("the doctor leaves %q and says %s", left, out)
	}

	// Without the ids the unpacked image differs, so it is unpacked again.
	line = s.ordinary("serve", "--data", s.data, "--accept-missing-limits")
	p = bed.Serve(t, s.data, "env", append([]string{"PATH=" + filepath.Dir(s.program)}, whole(t, line)...)...)
	if got := p.Shell(t, p.ClaimUnreleased(t, "image"), lookAround); got.Stream("STDOUT") != "0\n0:0 0:0 755\nnew\nhidden\nread-only\n" {
		t.Errorf("without newuidmap: %+v", got)
	}
	s.ends(p)
}

// whole returns a command line with the full path of its program.
func whole(t *testing.T, line []string) []string {
	t.Helper()
	path, err := exec.LookPath(line[0])
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{path}, line[1:]...)
}
