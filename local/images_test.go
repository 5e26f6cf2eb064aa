package local

import (
	"archive/tar"
	"context"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/local/image/imagetest"
	"github.com/rockpool/rockpool/runtime"
)

// imageEnvironment returns an environment of an image, whose image is here.
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

// awaitImage waits until an image is here, or can't be had now.
func (b *bench) awaitImage(pin runtime.ImagePin) runtime.ImageStatus {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if s := b.ImageStatus(pin); s.State != runtime.ImagePulling {
			return s
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			b.t.Fatalf("the image is still %+v", b.ImageStatus(pin))
		}
	}
}

func TestRunnerFromImage(t *testing.T) {
	b := running(t)
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
	id := b.begin(env)
	b.expect(id, "whoami; id -u; id -g; pwd", "runner\n1000\n1000\n/workspace")
	b.expect(id, "cat /srv/secret; stat -c ' %u:%g:%a' /srv/secret /bin/setuid", "mine 1000:1000:600\n 0:0:755")
	b.expect(id, "cat /srv/root 2>/dev/null || echo denied", "denied")
	b.expect(id, "head -n 1 /etc/hosts; readlink /proc || echo none", "127.0.0.1 localhost runner\nnone")
	b.expect(id, "touch /x /etc/x /srv/x 2>/dev/null || echo readonly; touch /workspace/x /tmp/x && echo writable", "readonly\nwritable")
	other := b.begin(env)
	b.expect(other, "cat /srv/secret; ls /workspace", "mine")
}
