// Package imagetest makes container images for tests, and runs a registry for them on loopback.
package imagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer returns a layer's archive. An entry without a type is a file, or a directory if its name
// ends in a slash.
func Layer(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, e := range entries {
		h := e.Header
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(h.Name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		if h.Mode == 0 {
			h.Mode = map[byte]int64{tar.TypeDir: 0o755}[h.Typeflag] | 0o644
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1e9, 0)
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(e.Content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// An Entry is a file, directory or link in a layer.
type Entry struct {
	tar.Header
	Content []byte
}

// File returns an entry for a file.
func File(name, content string) Entry {
	return Entry{Header: tar.Header{Name: name}, Content: []byte(content)}
}

// Kind returns an entry of a tar type.
func Kind(kind byte, name, link string) Entry {
	return Entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: link}}
}

// Busybox returns the entries of a layer with a shell and common tools. It skips the test if
// Debian's busybox-static isn't installed.
func Busybox(t testing.TB) []Entry {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("%v (apt-get install busybox-static)", err)
	}
	all := []Entry{{Header: tar.Header{Name: "bin/busybox", Mode: 0o755}, Content: program}}
	for _, command := range []string{"sh", "cat", "ls", "id", "env", "pwd", "whoami", "stat", "echo", "sleep", "touch", "readlink", "head"} {
		all = append(all, Kind(tar.TypeSymlink, "bin/"+command, "busybox"))
	}
	return append(all, File("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), File("etc/group", "root:x:0:\n"))
}

// Image makes an image of layers.
func Image(t testing.TB, config v1.Config, layers ...[]byte) v1.Image {
	t.Helper()
	packed := make([]v1.Layer, len(layers))
	for i, l := range layers {
		packed[i] = Packed(t, l, Gzip(t, l), types.DockerLayer)
	}
	return Of(t, goruntime.GOARCH, config, packed...)
}

// Of makes an image for an architecture.
func Of(t testing.TB, architecture string, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: architecture, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	added := make([]mutate.Addendum, len(layers))
	for i, l := range layers {
		added[i].Layer = l
	}
	if image, err = mutate.Append(image, added...); err != nil { // in one call: one by one the time would be quadratic
		t.Fatal(err)
	}
	return image
}

// Gzip compresses a layer's archive, as most registries store it.
func Gzip(t testing.TB, archive []byte) []byte {
	t.Helper()
	var small bytes.Buffer
	w, _ := gzip.NewWriterLevel(&small, gzip.BestSpeed)
	if _, err := w.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}

// Packed returns a layer that a registry stores as these bytes.
func Packed(t testing.TB, archive, bytesThere []byte, kind types.MediaType) v1.Layer {
	t.Helper()
	diffID, _, err := v1.SHA256(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return packedLayer{static.NewLayer(bytesThere, kind), diffID, archive}
}

type packedLayer struct {
	v1.Layer
	diffID  v1.Hash
	archive []byte
}

func (p packedLayer) DiffID() (v1.Hash, error) { return p.diffID, nil }
func (p packedLayer) Uncompressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(p.archive)), nil
}

// A Registry is a registry on this machine.
type Registry struct {
	t    testing.TB
	Host string // 127.0.0.1 and its port
	Stop func() // stops it before the test ends
}

// NewRegistry starts a registry until the test's end. Unless wrap is nil, its handler wraps the
// registry's.
func NewRegistry(t testing.TB, wrap func(http.Handler) http.Handler) *Registry {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &Registry{t: t, Host: strings.TrimPrefix(server.URL, "http://"), Stop: func() {
		server.CloseClientConnections()
		server.Close()
	}}
}

// Push stores an image in the registry and returns a reference to it.
func (r *Registry) Push(image v1.Image, repository string) string {
	r.t.Helper()
	ref, err := name.ParseReference(r.Host + "/" + repository)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithContext(r.t.Context()), remote.WithTransport(&http.Transport{DisableKeepAlives: true})); err != nil {
		r.t.Fatal(err)
	}
	return ref.String()
}

// PushIndex stores an index of images in the registry and returns a reference to it.
func (r *Registry) PushIndex(index v1.ImageIndex, repository string) string {
	r.t.Helper()
	ref, err := name.ParseReference(r.Host + "/" + repository)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(r.t.Context()), remote.WithTransport(&http.Transport{DisableKeepAlives: true})); err != nil {
		r.t.Fatal(err)
	}
	return ref.String()
}

// Digest returns an image's digest.
func Digest(t testing.TB, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(fmt.Errorf("digest: %w", err))
	}
	return digest.String()
}
