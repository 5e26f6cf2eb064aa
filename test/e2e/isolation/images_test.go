package isolation

import (
	"archive/tar"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/wait"
)

// busyboxImage returns an image whose /version has a text.
func busyboxImage(t *testing.T, version string) v1.Image {
	t.Helper()
	config := v1.Config{User: "70:70", WorkingDir: "/srv", Env: []string{"GREETING=hello", "HOME=/root", "PATH=/bin:/opt/bin"}}
	entries := append(imagetest.Busybox(t), imagetest.File("version", version))
	return imagetest.Image(t, config, imagetest.Layer(t, entries...), imagetest.Layer(t, imagetest.File("srv/file", "here")))
}

func TestE2EImage(t *testing.T) {
	b := bed.Open(t)
	registry := imagetest.NewRegistry(t, nil)
	first := busyboxImage(t, "1")
	reference := registry.Push(first, "busybox:tag")
	const put = `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`
	for _, wrong := range []string{"no reference", "../x", "file:../x", registry.Host + "/busybox:nothing"} {
		b.Refused(t, put, object{"in": object{"id": "image", "image": wrong}}, runtime.CodeInvalidInput, "image")
	}
	b.Refused(t, put, object{"in": object{"id": "image", "image": "127.0.0.1:1/x"}}, runtime.CodeClusterUnavailable, "")
	b.Put(t, object{"id": "image", "image": reference, "poolSize": 1, "variables": []object{{"name": "OWN", "value": "1"}}})
	runner := b.Claim(t, "image")
	script := `whoami; id -u; pwd; cat file; echo; echo $GREETING $OWN $HOME $USER $PATH; cat /version`
	want := "runner\n1000\n/srv\nhere\nhello 1 /tmp/home runner /bin:/opt/bin\n1"
	if got := b.Shell(t, runner, script); got.Stream("STDOUT") != want {
		t.Errorf("%q %q", got.Stream("STDOUT"), got.Stream("STDERR"))
	}
	state := imageOf(t, b, "image")
	if i := state.Pool.Image; i.State != "READY" || i.Digest != imagetest.Digest(t, first) || i.Layers != 2 || i.LayersDone != 2 || i.Bytes == 0 || i.BytesDone != i.Bytes {
		t.Errorf("%+v", i)
	}

	// The tag has moved to another image. The pinned one stays until the reference is put again.
	second := busyboxImage(t, "2")
	registry.Push(second, "busybox:tag")
	b.Change(t, object{"id": "image", "poolSize": 2})
	if got := version(t, b, "image"); got != "1" {
		t.Errorf("a runner of the pinned image has version %q, want \"1\"", got)
	}
	b.Change(t, object{"id": "image", "image": reference})
	wait.For(t, "the new image is READY", func() bool { return imageOf(t, b, "image").Pool.Image.State == "READY" })
	if s := imageOf(t, b, "image"); s.Revision != state.Revision+2 || s.Pool.Image.Digest != imagetest.Digest(t, second) {
		t.Errorf("%+v", s)
	}
	if got := version(t, b, "image"); got != "2" {
		t.Errorf("a runner of the new revision has version %q, want \"2\"", got)
	}
	if got := b.Shell(t, runner, "cat /version"); got.Stream("STDOUT") != "1" {
		t.Errorf("a claimed runner has version %q", got.Stream("STDOUT"))
	}

	// An image that can't be used: the previous revision stays in use.
	broken := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("../escaped", "x")))
	registry.Push(broken, "busybox:tag")
	b.Change(t, object{"id": "image", "image": reference})
	wait.For(t, "the failure is reported", func() bool { return imageOf(t, b, "image").Pool.Image.State == "FAILED" })
	if i := imageOf(t, b, "image").Pool; !strings.Contains(i.Image.Reason, "leads out") || i.Reason != "" {
		t.Errorf("%+v", i)
	}
	for range 3 { // more than were idle
		if got := version(t, b, "image"); got != "2" {
			t.Errorf("while the new image can't be used, a runner has version %q, want \"2\"", got)
		}
	}

	// Without a previous revision there are no runners, and the reason is reported.
	b.Put(t, object{"id": "image-new", "image": reference, "poolSize": 1})
	wait.For(t, "the failure is reported", func() bool { return strings.Contains(imageOf(t, b, "image-new").Pool.Reason, "leads out") })
	b.Refused(t, `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`, object{"in": object{"environmentId": "image-new"}}, runtime.CodeNoRunnerAvailable, "")
}

// A lockedRegistry needs a password, and sends only half of a held layer.
type lockedRegistry struct {
	*imagetest.Registry
	password atomic.Value // "" means everybody may
	held     atomic.Value // a layer's digest
}

func newLockedRegistry(t *testing.T) *lockedRegistry {
	r := &lockedRegistry{}
	r.password.Store("")
	r.held.Store("")
	r.Registry = imagetest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			_, given, _ := q.BasicAuth()
			switch held := r.held.Load().(string); {
			case r.password.Load() != "" && r.password.Load() != given:
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			case held != "" && q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, held):
				next.ServeHTTP(&halfWriter{w, 1 << 18}, q)
				<-q.Context().Done()
			default:
				next.ServeHTTP(w, q)
			}
		})
	})
	return r
}

// hold makes the registry send only half of an image's first layer.
func (r *lockedRegistry) hold(t *testing.T, image v1.Image) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	r.held.Store(digest.String())
}

// A halfWriter passes this many bytes on.
type halfWriter struct {
	http.ResponseWriter
	left int
}

func (w *halfWriter) Write(p []byte) (int, error) {
	some := p[:min(len(p), w.left)]
	w.left -= len(some)
	if _, err := w.ResponseWriter.Write(some); err != nil {
		return 0, err
	}
	w.ResponseWriter.(http.Flusher).Flush()
	return len(p), nil
}

func logIn(t *testing.T, host, password string) {
	t.Helper()
	entry := base64.StdEncoding.EncodeToString([]byte("user:" + password))
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, entry), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestE2EImageOutlivesTheServer kills a server that serves an image while it pulls the next
// revision. The registry refuses that revision to the next server until a login.
func TestE2EImageOutlivesTheServer(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	registry := newLockedRegistry(t)
	data := t.TempDir()
	reference := registry.Push(busyboxImage(t, "1"), "busybox:tag")
	registry.password.Store("hunter2")
	logIn(t, registry.Host, "hunter2")
	p := bed.ServeBinary(t, data)
	p.Change(t, object{"id": "image", "image": reference, "poolSize": 1})
	runner := p.ClaimUnreleased(t, "image")

	next := busyboxImage(t, "2")
	registry.password.Store("")
	registry.Push(next, "busybox:tag")
	registry.password.Store("hunter2")
	registry.hold(t, next)
	p.Change(t, object{"id": "image", "image": reference})
	if i := imageOf(t, p.Bed, "image").Pool.Image; i.State != "PULLING" || i.Digest != imagetest.Digest(t, next) {
		t.Errorf("right after the change: %+v", i)
	}
	wait.For(t, "half of it is here", func() bool { return imageOf(t, p.Bed, "image").Pool.Image.BytesDone >= 1<<17 })
	registry.held.Store("")
	registry.password.Store("hunter3")
	p.End(t, syscall.SIGKILL, false)
	logged := p.Stderr.String()
	p = bed.ServeBinary(t, data)
	if got := p.Shell(t, runner, "cat /version; touch /workspace/x && cat file"); got.Stream("STDOUT") != "1here" {
		t.Errorf("the runner that lived has %q %q", got.Stream("STDOUT"), got.Stream("STDERR"))
	}
	for range 3 {
		if got := p.Shell(t, p.ClaimUnreleased(t, "image"), "cat /version"); got.Stream("STDOUT") != "1" {
			t.Errorf("a new one has %q", got.Stream("STDOUT"))
		}
	}
	wait.For(t, "the failure is reported", func() bool { return imageOf(t, p.Bed, "image").Pool.Image.State == "FAILED" })
	if i := imageOf(t, p.Bed, "image").Pool.Image; !strings.Contains(i.Reason, "log in") {
		t.Errorf("%+v", i)
	}
	logIn(t, registry.Host, "hunter3")
	revision := imageOf(t, p.Bed, "image").Revision
	p.Change(t, object{"id": "image", "image": reference}) // changes nothing, but retries the pull immediately
	if s := imageOf(t, p.Bed, "image"); s.Pool.Image.State == "FAILED" || s.Revision != revision {
		t.Errorf("right after it is asked for again: %+v", s)
	}
	wait.For(t, "the image is here", func() bool { return imageOf(t, p.Bed, "image").Pool.Image.State == "READY" })
	if got := p.Shell(t, p.ClaimUnreleased(t, "image"), "cat /version"); got.Stream("STDOUT") != "2" {
		t.Errorf("a runner of the new image has %q", got.Stream("STDOUT"))
	}
	wait.For(t, "nothing is left of the pull that was killed", func() bool {
		half, err := os.ReadDir(filepath.Join(data, "local", "images", "tmp"))
		return err == nil && len(half) == 0
	})
	p.Finish(t)
	if logged += p.Stderr.String(); strings.Contains(logged, "hunter") || !strings.Contains(logged, "status 401") {
		t.Errorf("the log has a password, or doesn't say why: %s", logged)
	}
}

// TestE2EImageWithoutTheLocale runs Debian's perl and bash in an image with and without the locale of the
// default LANG. Without it they would warn.
func TestE2EImageWithoutTheLocale(t *testing.T) {
	b := bed.Open(t)
	entries := imagetest.Busybox(t)
	libraries, err := exec.CommandContext(t.Context(), "ldd", "/usr/bin/perl", "/bin/bash").Output()
	if err != nil {
		t.Fatal(err)
	}
	copied := map[string]bool{}
	for _, file := range append(strings.Fields(string(libraries)), "/usr/bin/perl", "/bin/bash") {
		if !filepath.IsAbs(file) || strings.HasSuffix(file, ":") || copied[file] {
			continue
		}
		copied[file] = true
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, imagetest.Entry{Header: tar.Header{Name: file[1:], Mode: 0o755}, Content: content})
	}
	var locale []imagetest.Entry
	err = filepath.WalkDir("/usr/lib/locale/C.utf8", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		locale = append(locale, imagetest.File(file[1:], string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := imagetest.NewRegistry(t, nil)
	for name, test := range map[string]struct {
		layers [][]byte
		lang   string
	}{
		"without": {[][]byte{imagetest.Layer(t, entries...)}, ""},
		"with":    {[][]byte{imagetest.Layer(t, entries...), imagetest.Layer(t, locale...)}, "LANG=C.UTF-8\n"},
	} {
		b.Put(t, object{"id": name, "image": registry.Push(imagetest.Image(t, v1.Config{}, test.layers...), name+":1"), "poolSize": 1})
		runner := b.Claim(t, name)
		got := b.Shell(t, runner, `perl -e 'print "perl\n"'; bash -c 'echo bash'; env | while read v; do case $v in LANG=*) echo $v; esac; done`)
		if got.Stream("STDOUT") != "perl\nbash\n"+test.lang || got.Stream("STDERR") != "" {
			t.Errorf("%s: %q %q", name, got.Stream("STDOUT"), got.Stream("STDERR"))
		}
		own := b.Run(t, object{"runnerId": runner, "shell": "echo $LANG", "variables": []object{{"name": "LANG", "value": "C.UTF-8"}}})
		if own.Stream("STDOUT") != "C.UTF-8\n" {
			t.Errorf("%s: the client's own LANG is %q", name, own.Stream("STDOUT"))
		}
	}
}
