package local

import (
	"archive/tar"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/wait"
)

// imageEnvironment returns an environment of an image that is stored.
func (b *bench) imageEnvironment(id runtime.EnvironmentID, reference string) runtime.Environment {
	b.t.Helper()
	env := hostEnvironment()
	pin, err := b.PinImage(b.t.Context(), reference)
	if err != nil {
		b.t.Fatal(err)
	}
	env.ID, env.Image, env.Pin = id, reference, pin
	if err := b.PutEnvironment(b.t.Context(), env); err != nil {
		b.t.Fatal(err)
	}
	if s := b.awaitImage(env.Pin); s.State != runtime.ImageReady {
		b.t.Fatalf("the image is %+v", s)
	}
	return env
}

// awaitImage waits until an image is stored or its pull has failed.
func (b *bench) awaitImage(pin runtime.ImagePin) (s runtime.ImageStatus) {
	b.t.Helper()
	wait.For(b.t, "the image is pulled, or failed", func() bool {
		s = b.ImageStatus(pin)
		return s.State != runtime.ImagePulling
	})
	return s
}

func TestRunnerFromImage(t *testing.T) {
	b := running(t)
	b.runnersFromImage(runtime.IsolationNamespaces)
	// Shared mounts exist, whichever sandbox was made first.
	b.expect(b.begin(hostEnvironment()), "test -d /usr/lib && echo there", "there")
}

// Images work the same for programs with a kernel of their own.
func TestGVisorRunnerFromImage(t *testing.T) {
	withGVisor(t).run().runnersFromImage(runtime.IsolationGVisor)
}

func (b *bench) runnersFromImage(isolation runtime.Isolation) {
	t := b.t
	registry := imagetest.NewRegistry(t, nil)
	own := tar.Header{Name: "srv/secret", Mode: 0o600, Uid: 4321, Gid: 4321}
	setuid := tar.Header{Name: "bin/setuid", Mode: 0o4755}
	private := tar.Header{Name: "srv/root", Mode: 0o600}
	layers := append(imagetest.Busybox(t),
		imagetest.File("etc/hosts", "6.6.6.6 localhost\n"),
		imagetest.Entry{Header: own, Content: []byte("mine")},
		imagetest.Entry{Header: private, Content: []byte("root's")},
		imagetest.Entry{Header: setuid, Content: []byte("#!/bin/sh\n")},
		imagetest.Kind(tar.TypeSymlink, "proc", "/etc"),
		imagetest.Kind(tar.TypeSymlink, "workspace", "/etc"),
		imagetest.Kind(tar.TypeSymlink, ".rockpool", "/etc"),
	)
	reference := registry.Push(imagetest.Image(t, v1.Config{User: "4321:4321"}, imagetest.Layer(t, layers...)), "x:tag")
	env := b.imageEnvironment("image", reference)
	env.Isolation = isolation
	id := b.begin(env)
	b.expect(id, "whoami; id -u; id -g; pwd", "runner\n1000\n1000\n/workspace")
	b.expect(id, "cat /srv/secret; stat -c ' %u:%g:%a' /srv/secret /bin/setuid", "mine 1000:1000:600\n 0:0:755")
	b.expect(id, "cat /srv/root 2>/dev/null || echo denied", "denied")
	b.expect(id, "head -n 1 /etc/hosts; readlink /proc || echo none", "127.0.0.1 localhost runner\nnone")
	b.expect(id, "touch /x /etc/x /srv/x 2>/dev/null || echo readonly; touch /workspace/x /tmp/x && echo writable", "readonly\nwritable")
	other := b.begin(env)
	b.expect(other, "cat /srv/secret; ls /workspace", "mine")
}

// The image of a runner is kept, even if only that runner uses it, its server has ended, and
// another image doesn't fit.
func TestImageInUseOutlivesItsServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.stop()
	b.config.Keep = true
	b.config.Images.Bytes = 3 << 20
	b.open()
	b.run()
	registry := imagetest.NewRegistry(t, nil)
	first := registry.Push(imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.Busybox(t)...)), "x:1")
	env := b.imageEnvironment("first", first)
	id := b.begin(env)
	if err := b.Mark(t.Context(), id, runtime.Claim{Epoch: 1, ClaimedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteEnvironment(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	b.stop()
	b.config.Keep = false
	b.open()
	b.run()
	large := imagetest.File("large", strings.Repeat("x", 2<<20))
	second := registry.Push(imagetest.Image(t, v1.Config{}, imagetest.Layer(t, large)), "x:2")
	pin, err := b.PinImage(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	other := env
	other.ID, other.Image, other.Pin = "second", second, pin
	if err := b.PutEnvironment(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if s := b.awaitImage(pin); s.State != runtime.ImageFailed || !strings.Contains(s.Reason, "in use") {
		t.Errorf("%+v", s)
	}
	b.expect(id, "whoami; ls /etc", "runner\ngroup\nhostname\nhosts\npasswd\nresolv.conf")
	if err := b.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.wantImage(other)
	wait.For(t, "there is room for the other image", func() bool { return b.ImageStatus(pin).State == runtime.ImageReady })
	if s := b.ImageStatus(env.Pin); s.State == runtime.ImageReady {
		t.Error("an unused image is still stored, without room")
	}
}
