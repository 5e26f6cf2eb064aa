package nomad

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/port"
	"github.com/rockpool/rockpool/test/repository"
	"github.com/rockpool/rockpool/test/wait"
)

// An operator follows docs/guides/nomad.md to the letter, but with other addresses and directories.
type operator struct {
	t     *testing.T
	dir   string            // replaces /etc/rockpool; the working directory
	other *strings.Replacer // replaces names that the page invents
	env   []string
}

// do runs lines of the page in a shell and returns what they print.
func (o operator) do(lines string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), "bash", "-ec", o.other.Replace(lines))
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), o.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s\n%v\n%s", lines, err, out)
	}
	return string(out)
}

// begin runs a line that doesn't end until the test ends. printed returns its output so far.
func (o operator) begin(line string) (printed func() string) {
	o.t.Helper()
	cmd := exec.Command("bash", "-ec", "exec "+o.other.Replace(line))
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), o.env...)
	var out lockedText
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || o.t.Failed() {
			o.t.Logf("%s: %v\n%s", line, err, out.String())
		}
	})
	return out.String
}

type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serving waits until a server is ready.
func (o operator) serving(address string) {
	o.t.Helper()
	wait.For(o.t, "the server is ready", func() bool {
		response, err := http.Get("http://" + address + "/health/ready")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// programs links the programs of the page into a directory, for PATH.
func programs(t *testing.T) (dir string) {
	t.Helper()
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.Command(filepath.Join(root, "scripts/nomad")).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, program := range map[string]string{"nomad": strings.TrimSpace(string(path)), "rockpool": bed.Rockpool(t)} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestE2ENomadGuideLeadsToARunningProgram follows docs/guides/nomad.md from an empty Nomad with
// users and certificates to a program that runs.
func TestE2ENomadGuideLeadsToARunningProgram(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"docker"}, ACL: true, TLS: true})
	registry := imagetest.NewRegistry(t, nil)
	python := registry.Push(imagetest.Image(t, v1.Config{Env: []string{"PATH=/bin", "WHICH=the image"}}, imagetest.Layer(t, imagetest.Busybox(t)...)), "python:3.12")
	o := operator{t: t, dir: t.TempDir()}
	ca, cert, key := n.TLS()
	o.env = []string{"PATH=" + programs(t) + ":" + os.Getenv("PATH"), "NOMAD_ADDR=" + n.Address(), "NOMAD_TOKEN=" + n.ManagementToken(), "NOMAD_CACERT=" + ca, "NOMAD_CLIENT_CERT=" + cert, "NOMAD_CLIENT_KEY=" + key,
		"ROCKPOOL_DATA=" + filepath.Join(o.dir, "data")}
	o.other = strings.NewReplacer("/etc/rockpool", o.dir, "rockpool.example.org:8080", n.Spare(), "rockpool.example.org", "127.0.0.1", "0.0.0.0:8080", n.Spare(),
		"https://nomad.example.org:4646", n.Address(), "python:3.12", python)
	for name, from := range map[string]string{"nomad-ca.pem": ca, "nomad.pem": cert, "nomad-key.pem": key} {
		if err := os.Symlink(from, filepath.Join(o.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"rockpool.hcl": documented(t, "hcl", "What Rockpool may do on Nomad"), "config.yaml": documented(t, "yaml", "cluster: nomad")} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(o.other.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	o.do(documented(t, "sh", "nomad acl policy apply"))
	before, after, found := strings.Cut(documented(t, "sh", "rockpool serve --config"), "rockpool serve --config")
	if !found {
		t.Fatal("the page doesn't start the server")
	}
	if said := o.do(before); strings.Contains(said, "FAIL") || !strings.Contains(said, "OK    policy") || !strings.Contains(said, "runners of the default size fit") {
		t.Errorf("doctor says:\n%s", said)
	}
	line, after, _ := strings.Cut(after, "\n")
	printed := o.begin("rockpool serve --config" + line)
	o.serving(n.Spare())
	const use = `
rockpool run --env python -- sh -c 'echo hi from $WHICH'
rockpool runner list`
	said := o.do(after + use)
	if !strings.Contains(said, "hi from the image") {
		t.Errorf("it says:\n%s\n%s", said, printed())
	}
	// Five runners of 2000 MHz don't fit on this node, and the list says so.
	wait.For(t, "the list says what the other runners wait for", func() bool {
		exports := regexp.MustCompile(`(?m)^export .*$`).FindString(after)
		return strings.Contains(o.do(exports+"\nrockpool runner list"), "cpu exhausted on 1 node")
	})
}

// TestE2ENomadQuickStartRunsAProgram follows the first three lines of the guide: a real Nomad, a
// server and a program.
func TestE2ENomadQuickStartRunsAProgram(t *testing.T) {
	need.Nomad(t)
	need.Program(t)
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(documented(t, "sh", "make nomad NOMADFLAGS")) {
		line, _, _ = strings.Cut(line, "  #")
		lines = append(lines, strings.TrimSpace(line))
	}
	if len(lines) != 3 {
		t.Fatalf("the page has %q", lines)
	}
	at := port.Spare(t)
	o := operator{t: t, dir: root, other: strings.NewReplacer("127.0.0.1:8080", at)}
	o.env = []string{"ROCKPOOL_LISTEN=" + at, "ROCKPOOL_SERVER=http://" + at, "ROCKPOOL_DATA=" + t.TempDir()}
	exports := regexp.MustCompile(`export ([A-Z_]+=\S+)`)
	printed := o.begin(lines[0])
	wait.For(t, "Nomad says how to use it", func() bool { return strings.Contains(printed(), "bin/rockpool serve") })
	for _, export := range exports.FindAllStringSubmatch(printed(), 2) { // the third is for all users
		o.env = append(o.env, export[1])
	}
	o.begin(lines[1])
	o.serving(at)
	if said := o.do(lines[2]); !strings.Contains(said, "hi\n") {
		t.Errorf("it says:\n%s", said)
	}
}
