package main

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/local/image/imagetest"
	"github.com/rockpool/rockpool/runtime"
)

// busyboxImage is an image whose /version has a text.
func busyboxImage(t *testing.T, version string) v1.Image {
	t.Helper()
	config := v1.Config{User: "70:70", WorkingDir: "/srv", Env: []string{"GREETING=hello", "HOME=/root", "PATH=/bin:/opt/bin"}}
	entries := append(imagetest.Busybox(t), imagetest.File("version", version))
	return imagetest.Image(t, config, imagetest.Layer(t, entries...), imagetest.Layer(t, imagetest.File("srv/file", "here")))
}

// An imageState is what tests ask of an environment with an image.
type imageState struct {
	Revision int
	Pool     struct {
		Idle   int
		Reason string
		Image  struct {
			Digest, State, Reason                string
			Layers, LayersDone, Bytes, BytesDone int64
		}
	}
}

func (b bed) image(t *testing.T, environment string) imageState {
	t.Helper()
	var out struct{ Environment imageState }
	b.call(t, `query($id: ID!) { environment(id: $id) { revision pool { idle reason image { digest state reason layers layersDone bytes bytesDone } } } }`, object{"id": environment}, &out)
	return out.Environment
}

// change puts an environment anew.
func (b bed) change(t *testing.T, input object) {
	t.Helper()
	b.call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": input}, nil)
}

// version returns that of the image that a new runner is made from.
func (b bed) version(t *testing.T, environment string) string {
	t.Helper()
	return b.shell(t, b.claim(t, environment), "cat /version").stream("STDOUT")
}

func TestE2EImage(t *testing.T) {
	b := e2e(t)
	registry := imagetest.NewRegistry(t, nil)
	first := busyboxImage(t, "1")
	reference := registry.Push(first, "busybox:tag")
	const put = `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`
	for _, wrong := range []string{"no reference", "../x", "file:../x", registry.Host + "/busybox:nothing"} {
		b.refused(t, put, object{"in": object{"id": "image", "image": wrong}}, runtime.CodeInvalidInput, "image")
	}
	b.refused(t, put, object{"in": object{"id": "image", "image": "127.0.0.1:1/x"}}, runtime.CodeClusterUnavailable, "")
	b.put(t, object{"id": "image", "image": reference, "poolSize": 1, "variables": []object{{"name": "OWN", "value": "1"}}})
	runner := b.claim(t, "image")
	script := `whoami; id -u; pwd; cat file; echo; echo $GREETING $OWN $HOME $USER $PATH; cat /version`
	want := "runner\n1000\n/srv\nhere\nhello 1 /workspace runner /bin:/opt/bin\n1"
	if got := b.shell(t, runner, script); got.stream("STDOUT") != want {
		t.Errorf("%q %q", got.stream("STDOUT"), got.stream("STDERR"))
	}
	state := b.image(t, "image")
	if i := state.Pool.Image; i.State != "READY" || i.Digest != imagetest.Digest(t, first) || i.Layers != 2 || i.LayersDone != 2 || i.Bytes == 0 || i.BytesDone != i.Bytes {
		t.Errorf("%+v", i)
	}

	// The tag means another image now; what is pinned stays until it is named again.
	second := busyboxImage(t, "2")
	registry.Push(second, "busybox:tag")
	b.change(t, object{"id": "image", "poolSize": 2})
	if got := b.version(t, "image"); got != "1" {
		t.Errorf("a runner of the pinned image has version %q", got)
	}
	b.change(t, object{"id": "image", "image": reference})
	eventually(t, 20*time.Second, "the new image is there", func() bool {
		i := b.image(t, "image").Pool.Image // at first still the pool's, as it was
		return i.State == "READY" && i.Digest == imagetest.Digest(t, second)
	})
	if s := b.image(t, "image"); s.Revision != state.Revision+2 || s.Pool.Image.Digest != imagetest.Digest(t, second) {
		t.Errorf("%+v", s)
	}
	if got := b.version(t, "image"); got != "2" {
		t.Errorf("a runner of the new revision has version %q", got)
	}
	if got := b.shell(t, runner, "cat /version"); got.stream("STDOUT") != "1" {
		t.Errorf("a claimed runner has version %q", got.stream("STDOUT"))
	}

	// An image that can't be used: the revision before goes on.
	broken := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("../escaped", "x")))
	registry.Push(broken, "busybox:tag")
	b.change(t, object{"id": "image", "image": reference})
	eventually(t, 20*time.Second, "the failure is told", func() bool { return b.image(t, "image").Pool.Image.State == "FAILED" })
	if i := b.image(t, "image").Pool; !strings.Contains(i.Image.Reason, "leads out of the image") || i.Reason != "" {
		t.Errorf("%+v", i)
	}
	for range 3 { // more than were idle
		if got := b.version(t, "image"); got != "2" {
			t.Errorf("while the new image can't be used, a runner has version %q", got)
		}
	}

	// Without a revision before, there are no runners, and it is told why.
	b.put(t, object{"id": "image-new", "image": reference, "poolSize": 1})
	eventually(t, 20*time.Second, "the failure is told", func() bool { return strings.Contains(b.image(t, "image-new").Pool.Reason, "leads out") })
	b.refused(t, `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`, object{"in": object{"environmentId": "image-new"}}, runtime.CodeNoRunnerAvailable, "")
}

// TestE2EImageOutlivesTheServer kills one that serves an image while the next
// one can't be had, and the registry with it.
func TestE2EImageOutlivesTheServer(t *testing.T) {
	p := serveBinary(t, t.TempDir())
	registry := imagetest.NewRegistry(t, nil)
	reference := registry.Push(busyboxImage(t, "1"), "busybox:tag")
	p.change(t, object{"id": "image", "image": reference, "poolSize": 1})
	runner := p.claimed(t, "image")
	registry.Push(imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File("../escaped", "x"))), "busybox:tag")
	p.change(t, object{"id": "image", "image": reference})
	registry.Stop()
	p = p.killed(t, 0)
	if got := p.shell(t, runner, "cat /version; touch /workspace/x && cat file"); got.stream("STDOUT") != "1here" {
		t.Errorf("the runner that lived has %q %q", got.stream("STDOUT"), got.stream("STDERR"))
	}
	for range 3 {
		if got := p.shell(t, p.claimed(t, "image"), "cat /version"); got.stream("STDOUT") != "1" {
			t.Errorf("a new one has %q", got.stream("STDOUT"))
		}
	}
	eventually(t, 20*time.Second, "the failure is told", func() bool { return p.image(t, "image").Pool.Image.State == "FAILED" })
	p.finish(t)
}

// claimed claims a runner that nobody releases.
func (b bed) claimed(t *testing.T, environment string) string {
	t.Helper()
	var out struct {
		ClaimRunner struct{ Runner struct{ ID string } }
	}
	b.call(t, `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`, object{"in": object{"environmentId": environment, "waitFor": 60}}, &out)
	return out.ClaimRunner.Runner.ID
}
