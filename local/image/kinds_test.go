package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
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
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/imagetest"
	"github.com/rockpool/rockpool/runtime"
)

// unpacked pulls an image, and returns its root.
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

// Layers come in every dress that registries have them in.
func TestKindsOfLayers(t *testing.T) {
	archive := func(name string) []byte { return imagetest.Layer(t, file(name, name)) }
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
	nearAndFar(t, func(t *testing.T, worker func(*Config)) {
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

// Of an index the image for this machine is taken, and pinned.
func TestIndexes(t *testing.T) {
	index := v1.ImageIndex(empty.Index)
	digests := map[string]string{}
	for _, architecture := range []string{"arm64", "s390x", "amd64"} {
		archive := imagetest.Layer(t, file("architecture", architecture))
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

// As many layers as builders make, where each deletes what the one before had.
func TestManyLayers(t *testing.T) {
	var layers [][]byte
	for i := range 127 {
		entries := []entry{file(fmt.Sprintf("d/%d", i), fmt.Sprint(i)), file("same", fmt.Sprint(i))}
		if i > 0 {
			entries = append(entries, file(fmt.Sprintf("d/.wh.%d", i-1), ""))
		}
		layers = append(layers, imagetest.Layer(t, entries...))
	}
	tr := newTree(t)
	if err := tr.apply(layers...); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(tr.dir, "root", "d"))
	if err != nil || len(left) != 1 {
		t.Errorf("%v (%v)", left, err)
	}
	tr.has(map[string]string{"d/126": "126", "same": "126"})
}

// Layers that lie elsewhere than in the registry aren't had from there.
func TestForeignLayers(t *testing.T) {
	archive := imagetest.Layer(t, file("a", "a"))
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
		if runtime.CodeOf(err) != runtime.CodeInvalidInput || !strings.Contains(tellOf(err), "foreign") {
			t.Errorf("%s: %v", name, err)
		}
	}
	signed := static.NewLayer([]byte("x"), "application/vnd.example.artifact")
	artifact := imagetest.Of(t, goruntime.GOARCH, v1.Config{}, signed)
	if s := b.want(registry.Push(artifact, "artifact:1")); s.State != runtime.ImageFailed || !strings.Contains(s.Reason, "layer") {
		t.Errorf("what isn't an image: %+v", s)
	}
}

// Names may be of any bytes, as long as the kernel takes them.
func TestOddNames(t *testing.T) {
	long := strings.Repeat("n", 200)
	names := []string{"a b", "new\nline", "back\\slash", "quote\"'", "\t", "日本/語", "-rf", "*", long, "d" + long + "/" + long, "dots...", "...", strings.Repeat("n", 255)}
	raw := []string{"\xff\xfe", "half\xc3"} // no UTF-8
	for _, format := range []tar.Format{tar.FormatPAX, tar.FormatGNU} {
		all := names
		if format == tar.FormatGNU {
			all = append(all, raw...)
		}
		var entries []entry
		want := map[string]string{}
		for i, name := range all {
			entries = append(entries, entry{Header: header{Name: name, Format: format}, Content: []byte(fmt.Sprint(i))}, entry{Header: header{Name: fmt.Sprintf("link%d", i), Typeflag: tar.TypeSymlink, Linkname: name, Format: format}})
			want[name], want[fmt.Sprintf("link%d", i)] = fmt.Sprint(i), fmt.Sprint(i)
		}
		tr := newTree(t)
		if err := tr.apply(imagetest.Layer(t, entries...)); err != nil {
			t.Fatal(err)
		}
		tr.has(want)
		tr.unharmed()
	}
	tr := newTree(t)
	if err := tr.apply(imagetest.Layer(t, file(strings.Repeat("n", 256), ""))); runtime.CodeOf(err) != runtime.CodeInvalidInput {
		t.Errorf("a name that no file can have: %v", err)
	}
}

// What one layer has twice is as the last entry says.
func TestDuplicateEntries(t *testing.T) {
	tr := newTree(t)
	err := tr.apply(
		imagetest.Layer(t, file("lower", "lower"), file("below/x", "x"), file("kept", "kept"), file("d1/x", "1")),
		imagetest.Layer(t,
			file("f", "first"), file("f", "last"), file("./f2", "first"), file("/f2", "last"),
			file("d", "a file"), kind(tar.TypeDir, "d/", ""), file("d/in", "in"),
			kind(tar.TypeDir, "e/", ""), file("e/in", "in"), file("e", "a file"),
			kind(tar.TypeSymlink, "s", "f"), file("s", "its own"),
			kind(tar.TypeLink, "hard", "lower"), kind(tar.TypeLink, "hard2", "kept"), file(".wh.kept", ""), // across layers
			file("f3", "x"), kind(tar.TypeLink, "h3", "f3"), file("f3", "y"),
			file("below", "flat"), kind(tar.TypeSymlink, "d1", "d"), file("d1/through", "t"),
			file("gone", "x"), file(".wh.gone", ""), // what this layer has stays
		))
	if err != nil {
		t.Fatal(err)
	}
	tr.has(map[string]string{
		"f": "last", "f2": "last", "d/in": "in", "e": "a file", "s": "its own", "hard": "lower", "hard2": "kept", "kept": "-",
		"f3": "y", "h3": "x", "below": "flat", "d/through": "t", "gone": "x",
	})
	var lower, hard unix.Stat_t
	if err := unix.Lstat(filepath.Join(tr.dir, "root", "lower"), &lower); err != nil || unix.Lstat(filepath.Join(tr.dir, "root", "hard"), &hard) != nil || lower.Ino != hard.Ino {
		t.Errorf("a hard link to a lower layer's file is another file (%v)", err)
	}
	tr.unharmed()
}

// Sparse files have all their bytes, in each format that tar writes.
func TestSparseFiles(t *testing.T) {
	dir := t.TempDir()
	content := append(append(bytes.Repeat([]byte("a"), 4096), make([]byte, 256<<10)...), bytes.Repeat([]byte("z"), 4096)...)
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, len(content) - 4096} {
		if _, err := f.WriteAt(content[at:at+4096], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, format := range [][]string{{"--format=gnu"}, {"--format=posix", "--sparse-version=1.0"}, {"--format=posix", "--sparse-version=0.1"}, {"--format=posix", "--sparse-version=0.0"}} {
		layer, err := exec.CommandContext(t.Context(), "tar", append(format, "--sparse", "-C", dir, "-cf", "-", "sparse")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if len(layer) > 100<<10 {
			t.Errorf("%q: the archive isn't sparse: %d bytes", format, len(layer))
		}
		tr := newTree(t)
		if err := tr.apply(layer); err != nil {
			t.Errorf("%q: %v", format, err)
		}
		tr.has(map[string]string{"sparse": string(content)})
	}
}
