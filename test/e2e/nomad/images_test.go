package nomad

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/imagetest"
	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// imageOf makes an image with a user, variables and a working directory. A file and a variable say
// which image it is.
func imageOf(t *testing.T, which string) v1.Image {
	t.Helper()
	own := imagetest.Layer(t,
		imagetest.File("which", which+"\n"),
		imagetest.File("etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/srv:/bin/sh\n"),
	)
	config := v1.Config{Env: []string{"PATH=/opt/tool/bin:/bin", "WHICH=" + which}, WorkingDir: "/srv/app", User: "app"}
	return imagetest.Image(t, config, imagetest.Layer(t, imagetest.Busybox(t)...), own)
}

// TestE2ENomadPinsImages: putting an environment pins its image's tag. All runners use these bytes,
// even if the tag moves, until the environment is put again.
func TestE2ENomadPinsImages(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{Drivers: []string{"docker"}})
	registry := imagetest.NewRegistry(t, nil)
	settings := newNomadConfig(t, n)
	settings.Nomad.Driver, settings.Nomad.NodeImages = "docker", false
	settings.Nomad.ForcePull = true // otherwise a node may use its cached image
	b, _ := bed.ServeHere(t, settings)
	p := driverBed{b, n, "docker"}
	tag := registry.Push(imageOf(t, "first"), "pinned:1")
	environment := object{"image": tag, "isolation": "CLUSTER"}
	runner := p.claim(t, "pinned", environment)
	const script = "cat /which; pwd; id -u; id -g; echo $PATH $WHICH $USER"
	want := func(which string) string {
		return which + "\n/srv/app\n1234\n1235\n/opt/tool/bin:/bin " + which + " app\n"
	}
	if r := p.Shell(t, runner, script); r.Stream("STDOUT") != want("first") {
		t.Errorf("%s%s", r.Stream("STDOUT"), r.Stream("STDERR"))
	}
	image := func() (digest, state string) {
		var out struct {
			Environment struct {
				Pool struct {
					Image struct{ Digest, State string }
				}
			}
		}
		p.Call(t, `{ environment(id: "pinned") { pool { image { digest state } } } }`, nil, &out)
		return out.Environment.Pool.Image.Digest, out.Environment.Pool.Image.State
	}
	if digest, state := image(); digest != imagetest.Digest(t, imageOf(t, "first")) || state != "READY" {
		t.Errorf("the image is reported as %s, %s", digest, state)
	}

	registry.Push(imageOf(t, "second"), "pinned:1")
	if r := p.Shell(t, p.claim(t, "pinned", object{"poolSize": 0}), script); r.Stream("STDOUT") != want("first") {
		t.Errorf("after the tag moved: %s%s", r.Stream("STDOUT"), r.Stream("STDERR"))
	}
	if r := p.Shell(t, p.claim(t, "pinned", environment), script); r.Stream("STDOUT") != want("second") {
		t.Errorf("put again: %s%s", r.Stream("STDOUT"), r.Stream("STDERR"))
	}

	// An image that the registry doesn't know may be on the nodes: it is served, and reported.
	unknown := strings.Replace(tag, "pinned:1", "unknown:1", 1)
	p.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "unknown", "image": unknown, "isolation": "CLUSTER", "poolSize": 0}}, nil)
	problem := func() string {
		var out struct {
			Health struct {
				Components []struct{ Name, Message string }
			}
		}
		p.Call(t, `{ health { components { name message } } }`, nil, &out)
		for _, c := range out.Health.Components {
			if strings.Contains(c.Message, "image of environment unknown") {
				return c.Message
			}
		}
		return ""
	}
	if text := problem(); !strings.Contains(text, unknown) {
		t.Errorf("it is reported as %q, want a problem that names %s", text, unknown)
	}
	p.Call(t, `mutation { deleteEnvironment(input: {id: "unknown"}) { deleted } }`, nil, nil)
	wait.For(t, "it isn't reported any more", func() bool { return problem() == "" })

	// A registry that doesn't answer is an error, and nothing changes.
	p.Refused(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`,
		object{"in": object{"id": "away", "image": "127.0.0.1:1/x:1", "isolation": "CLUSTER"}}, runtime.CodeClusterUnavailable, "")
	var out struct{ Environments []struct{ ID string } }
	p.Call(t, `{ environments { id } }`, nil, &out)
	if len(out.Environments) != 1 {
		t.Errorf("environments: %v", out.Environments)
	}
}
