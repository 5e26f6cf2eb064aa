package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/renameio/v2"

	"github.com/rockpool/rockpool/runtime"
)

// An archive is a written image.
type archive struct {
	bytes  int64
	digest v1.Hash // of its manifest
}

// write writes an image with one layer, whose tar archive fill writes, as an archive of an OCI layout.
// The file is replaced at the end; if anything fails, it stays as it was.
func write(file string, made time.Time, fill func(layer io.Writer) error, written *archive) (err error) {
	layer, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-layer-")
	if err != nil {
		return err
	}
	defer layer.Close()
	defer func() { _ = os.Remove(layer.Name()) }() // a leftover is only a hidden file
	packed, unpacked := sha256.New(), sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(layer, packed), 1<<20)
	compressed, err := gzip.NewWriterLevel(buffered, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := fill(io.MultiWriter(compressed, unpacked)); err != nil {
		return err
	}
	if err := errors.Join(compressed.Close(), buffered.Flush()); err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	out, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Cleanup()) }()
	p := pack{Writer: tar.NewWriter(out), made: made}
	config := p.json(v1.ConfigFile{
		OS: "linux", Architecture: goruntime.GOARCH, Created: v1.Time{Time: made},
		Config: v1.Config{Env: []string{"PATH=" + runtime.SearchPath, "LANG=C.UTF-8"}, Cmd: []string{"/bin/sh"}},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{hash(unpacked.Sum(nil))}},
	}, types.OCIConfigJSON)
	blob := v1.Descriptor{MediaType: types.OCILayer, Digest: hash(packed.Sum(nil)), Size: size}
	p.blob(blob, layer)
	manifest := p.json(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{blob}}, types.OCIManifestSchema1)
	manifest.Platform = &v1.Platform{OS: "linux", Architecture: goruntime.GOARCH}
	p.file("index.json", v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{manifest}})
	p.file("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"})
	if err := errors.Join(p.err, p.Close()); err != nil {
		return err
	}
	*written = archive{size, manifest.Digest}
	return out.CloseAtomicallyReplace()
}

func hash(sum []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum)} }

// A pack writes the parts of a layout into a tar archive. After an error it writes nothing more.
type pack struct {
	*tar.Writer
	made time.Time
	err  error
}

func (p *pack) json(value any, kind types.MediaType) v1.Descriptor {
	text := p.marshal(value)
	sum := sha256.Sum256(text)
	d := v1.Descriptor{MediaType: kind, Digest: hash(sum[:]), Size: int64(len(text))}
	p.blob(d, bytes.NewReader(text))
	return d
}

func (p *pack) marshal(value any) []byte {
	text, err := json.Marshal(value)
	p.err = errors.Join(p.err, err)
	return text
}

func (p *pack) blob(d v1.Descriptor, content io.Reader) {
	p.entry("blobs/sha256/"+d.Digest.Hex, d.Size, content)
}

func (p *pack) file(name string, value any) {
	text := p.marshal(value)
	p.entry(name, int64(len(text)), bytes.NewReader(text))
}

func (p *pack) entry(name string, size int64, content io.Reader) {
	if p.err == nil {
		p.err = p.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: p.made, Format: tar.FormatPAX})
	}
	if p.err == nil {
		_, p.err = io.Copy(p.Writer, content)
	}
}
