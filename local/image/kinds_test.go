package image

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/imagetest"
)

// unpacked pulls an image, and returns its root directory.
func (b *box) unpacked(reference string) string {
	b.t.Helper()
	s := b.want(reference)
	if s.State != runtime.ImageReady {
		b.t.Fatalf("%s: %+v", reference, s)
	}
	root, err := b.Root(s.Digest)
	if err != nil {
		b.t.Fatal(err)
	}
	return root
}

// Layers in every format of registries are unpacked.
func TestKindsOfLayers(t *testing.T) {
	archive := func(name string) []byte { return imagetest.Layer(t, imagetest.File(name, name)) }
	frame := func(content []byte) []byte {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.EncodeAll(content, nil)
	}
	half := len(archive("members")) / 2
	as := func(name string, kind types.MediaType, pack func([]byte) []byte) v1.Layer {
		return imagetest.Packed(t, archive(name), pack(archive(name)), kind)
	}
	none := imagetest.Packed(t, nil, imagetest.Gzip(t, nil), types.OCILayer)
	layers := []v1.Layer{
		as("gzip", types.DockerLayer, func(a []byte) []byte { return imagetest.Gzip(t, a) }),
		as("oci", types.OCILayer, func(a []byte) []byte { return imagetest.Gzip(t, a) }),
		as("members", types.OCILayer, func(a []byte) []byte { return append(imagetest.Gzip(t, a[:half]), imagetest.Gzip(t, a[half:])...) }),
		as("zstd", types.OCILayerZStd, frame),
		as("frames", types.OCILayerZStd, func(a []byte) []byte { return append(frame(a[:half]), frame(a[half:])...) }),
		as("skipped", types.OCILayerZStd, func(a []byte) []byte { return append([]byte("\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"), frame(a)...) }),
		as("plain", types.OCIUncompressedLayer, func(a []byte) []byte { return a }),
		as("docker", types.DockerUncompressedLayer, func(a []byte) []byte { return a }),
		imagetest.Packed(t, imagetest.Layer(t), imagetest.Gzip(t, imagetest.Layer(t)), types.DockerLayer), none, none, // the same twice
	}
	docker := imagetest.Of(t, goruntime.GOARCH, v1.Config{}, layers...)
	oci := mutate.ConfigMediaType(mutate.MediaType(docker, types.OCIManifestSchema1), types.OCIConfigJSON)
	registry := imagetest.NewRegistry(t, nil)
	withAndWithoutWorker(t, func(t *testing.T, worker func(*Config)) {
		b := newBox(t, t.TempDir(), worker)
		for name, image := range map[string]v1.Image{"docker": docker, "oci": oci} {
			root := b.unpacked(registry.Push(image, name+":1"))
			for _, want := range []string{"gzip", "oci", "members", "zstd", "frames", "skipped", "plain", "docker"} {
				if text, err := os.ReadFile(filepath.Join(root, want)); err != nil || string(text) != want {
					t.Errorf("%s: %s is %q (%v)", name, want, text, err)
				}
			}
		}
	})
}

// The index's image for this platform is pulled and pinned.
func TestIndexSelectsThisPlatform(t *testing.T) {
	index := v1.ImageIndex(empty.Index)
	digests := map[string]string{}
	for _, architecture := range []string{"arm64", "s390x", "amd64"} {
		archive := imagetest.Layer(t, imagetest.File("architecture", architecture))
		image := imagetest.Of(t, architecture, v1.Config{}, imagetest.Packed(t, archive, imagetest.Gzip(t, archive), types.OCILayer))
		digests[architecture] = imagetest.Digest(t, image)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	about := mutate.IndexAddendum{Add: small(t, "an attestation"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}}
	index = mutate.AppendManifests(index, about)
	b := newBox(t, t.TempDir(), nil)
	registry := imagetest.NewRegistry(t, nil)
	for name, index := range map[string]v1.ImageIndex{
		"oci": index, "docker": mutate.IndexMediaType(index, types.DockerManifestList), "nested": mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
			Add: index, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: goruntime.GOARCH}}}),
	} {
		reference := registry.PushIndex(index, name+":1")
		pin, err := b.Resolve(t.Context(), reference)
		if err != nil || pin.Digest != digests[goruntime.GOARCH] {
			t.Errorf("%s: %+v (%v), not %s", name, pin, err, digests[goruntime.GOARCH])
			continue
		}
		root := b.unpacked(reference)
		if text, err := os.ReadFile(filepath.Join(root, "architecture")); err != nil || string(text) != goruntime.GOARCH {
			t.Errorf("%s: it is for %q (%v)", name, text, err)
		}
	}
}

// Layers outside the registry aren't fetched.
func TestForeignLayersAreRefused(t *testing.T) {
	archive := imagetest.Layer(t, imagetest.File("a", "a"))
	image := imagetest.Image(t, v1.Config{}, archive)
	inside := imagetest.Packed(t, archive, imagetest.Gzip(t, archive), types.DockerForeignLayer)
	elsewhere, err := mutate.Append(image, mutate.Addendum{Layer: inside, URLs: []string{"http://127.0.0.1:1/layer"}, MediaType: types.DockerLayer})
	if err != nil {
		t.Fatal(err)
	}
	registry := imagetest.NewRegistry(t, nil)
	b := newBox(t, t.TempDir(), nil)
	for name, image := range map[string]v1.Image{"urls": elsewhere, "kind": imagetest.Of(t, goruntime.GOARCH, v1.Config{}, inside)} {
		_, err := b.Resolve(t.Context(), registry.Push(image, name+":1"))
		if runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(runtime.MessageOf(err), "foreign") {
			t.Errorf("%s: got %v, want INVALID_INPUT for a foreign layer", name, err)
		}
	}
	signed := static.NewLayer([]byte("x"), "application/vnd.example.artifact")
	artifact := imagetest.Of(t, goruntime.GOARCH, v1.Config{}, signed)
	if s := b.want(registry.Push(artifact, "artifact:1")); s.State != runtime.ImageFailed || !strings.Contains(s.Reason, "layer") {
		t.Errorf("a layer that isn't an image's: %+v", s)
	}
}
