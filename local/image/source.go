package image

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rockpool/rockpool/local/image/tree"
	"github.com/rockpool/rockpool/runtime"
)

// Bounds of an image's descriptions, which are read into memory.
const (
	maxDocument = 4 << 20 // bytes; registries accept manifests up to this size; parsed JSON takes much more memory
	maxLayers   = 256
	maxLayer    = 1 << 50 // bytes; no sum of sizes overflows
)

// A source is an image that can be read. Its digest covers everything that it contains: it is the
// manifest's digest, or else the configuration's.
type source struct {
	digest string
	config *v1.ConfigFile
	layers []layer
	parts  blobs // of an image in files
}

// Close ends the reading of layers.
func (s *source) Close() {
	if s.parts != nil {
		_ = s.parts.Close()
	}
}

type layer struct {
	size   int64 // bytes as transferred, mostly compressed
	diffID v1.Hash
	open   func() (io.ReadCloser, error)
}

func newSource(rawManifest, rawConfig []byte, on v1.Platform, open func(v1.Descriptor) func() (io.ReadCloser, error)) (*source, error) {
	manifest, err := v1.ParseManifest(bytes.NewReader(rawManifest))
	if err != nil {
		return nil, tree.Invalid("its manifest can't be read", err)
	}
	if err := matches("configuration", rawConfig, manifest.Config.Digest); err != nil {
		return nil, err
	}
	s, err := configured(rawConfig, on, len(manifest.Layers))
	if err != nil {
		return nil, err
	}
	s.digest = digestOf(rawManifest).String()
	for i, l := range manifest.Layers {
		if l.Size < 0 || l.Size > maxLayer {
			return nil, tree.TooLarge("its layer %d has an invalid size: %d bytes", i+1, l.Size)
		}
		if len(l.URLs) > 0 || !l.MediaType.IsDistributable() {
			return nil, tree.Invalid(fmt.Sprintf("its layer %d is foreign: it isn't in the image's registry", i+1), nil)
		}
		s.layers = append(s.layers, layer{size: l.Size, diffID: s.config.RootFS.DiffIDs[i], open: open(l)})
	}
	return s, nil
}

func configured(rawConfig []byte, on v1.Platform, layers int) (*source, error) {
	config, err := v1.ParseConfigFile(bytes.NewReader(rawConfig))
	if err != nil {
		return nil, tree.Invalid("its configuration can't be read", err)
	}
	platform := v1.Platform{OS: cmp.Or(config.OS, "linux"), Architecture: cmp.Or(config.Architecture, goruntime.GOARCH)}
	switch {
	case !platform.Equals(on):
		return nil, tree.Invalid(fmt.Sprintf("it is for %s, not for %s", platform, on), nil)
	case layers > maxLayers:
		return nil, tree.Invalid(fmt.Sprintf("it has %d layers; at most %d are allowed", layers, maxLayers), nil)
	case len(config.RootFS.DiffIDs) != layers:
		return nil, tree.Invalid(fmt.Sprintf("it has %d layers, but its configuration has %d", layers, len(config.RootFS.DiffIDs)), nil)
	}
	return &source{config: config}, nil
}

func localPlatform() v1.Platform { return v1.Platform{OS: "linux", Architecture: goruntime.GOARCH} }

func (s *source) size() (total int64) {
	for _, l := range s.layers {
		total += l.size
	}
	return total
}

// matches returns an error unless raw has the digest want. what names raw in the error.
func matches(what string, raw []byte, want v1.Hash) error {
	if got := digestOf(raw); got != want {
		return mismatch(what, got.String(), want.String())
	}
	return nil
}

func digestOf(raw []byte) v1.Hash {
	digest, _, _ := v1.SHA256(bytes.NewReader(raw)) // it can't fail
	return digest
}

// mismatch is the error of bytes that were perhaps corrupted in transfer: a retry can succeed.
func mismatch(what, got, want string) error {
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the image's %s doesn't match its digest: it is %s, not %s", what, got, want)
}

// pin returns what a revision stores of an image. Runners mount over the covered directories.
func (s *source) pin(home string, covered []string) (runtime.ImagePin, error) {
	config := s.config.Config
	p := runtime.ImagePin{Digest: s.digest, User: tree.UserName(config.User)}
	total := 0
	for _, v := range config.Env {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.ContainsRune(v, 0) {
			continue
		}
		total += len(v)
		p.Variables = append(p.Variables, runtime.Variable{Name: name, Value: value})
	}
	if len(p.Variables) > runtime.MaxVariables || total > maxVariables {
		return p, tree.TooLarge("it has %d variables of %d bytes in all; at most %d of %d bytes are allowed", len(p.Variables), total, runtime.MaxVariables, maxVariables)
	}
	p.WorkingDirectory = workingDirectory(config.WorkingDir, append(covered, home))
	return p, nil
}

// maxVariables bounds the bytes of an image's variables, because they are stored with every runner.
const maxVariables = 32 << 10

func workingDirectory(dir string, covered []string) string {
	dir = path.Clean("/" + dir)
	if dir == "/" || len(dir) > 1024 || strings.ContainsRune(dir, 0) {
		return ""
	}
	if slices.ContainsFunc(covered, func(c string) bool { return dir == c || strings.HasPrefix(dir, c+"/") }) {
		return ""
	}
	return dir
}

const filePrefix = "file:"

type reference struct {
	registry name.Reference // nil for a file
	file     string         // the name of an archive, or of a layout's directory
	tag      string         // tag of the image in the file; empty for the only one
}

// parse parses a reference, or returns INVALID_INPUT. The registries in plain have no TLS.
func parse(text string, plain []string) (reference, error) {
	if file, ok := strings.CutPrefix(text, filePrefix); ok {
		file, tag, _ := strings.Cut(file, "#")
		if !filepath.IsLocal(file) || file == "." {
			return reference{}, runtime.Invalid("image", "file: must be followed by a path below the server's directory of image files, without ..")
		}
		return reference{file: file, tag: tag}, nil
	}
	registry, err := name.ParseReference(text)
	if strings.HasPrefix(text, ".") {
		err = errors.New("a path")
	}
	if err == nil && slices.Contains(plain, registry.Context().RegistryStr()) {
		registry, err = name.ParseReference(text, name.Insecure)
	}
	if err != nil {
		return reference{}, &runtime.Error{
			Code: runtime.CodeInvalidInput, Field: "image", Err: err,
			Message: `must be "host", a reference such as "python:3.12" or "registry.example.org/x@sha256:…", or "file:" and the name of an archive`,
		}
	}
	return reference{registry: registry}, nil
}
