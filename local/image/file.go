package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/image/tree"
)

// blobs are the parts of an image: files of an OCI layout, or entries of an archive.
type blobs interface {
	// open opens a part and returns its size, or fs.ErrNotExist if it is missing.
	open(name string) (io.ReadCloser, int64, error)
	Close() error
}

// whereFiles says where the directory is, without its path, which only the operator may know.
const whereFiles = "image-files in the data directory, unless --image-files names another"

// openFile opens a layout's directory or an archive below dir. The caller closes the source.
func openFile(ctx context.Context, dir string, ref reference) (*source, error) {
	// With a root, neither the reference nor a symbolic link leads out of the directory.
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, tree.Invalid("the server's directory of image files is missing: make it on the server's machine, and put the file into it. It is "+whereFiles, err)
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat(ref.file)
	if err != nil {
		return nil, tree.Invalid(fmt.Sprintf("%s is missing in the server's directory of image files, which is %s", ref.file, whereFiles), err)
	}
	var parts blobs
	if info.IsDir() {
		below, err := root.OpenRoot(ref.file)
		if err != nil {
			return nil, err
		}
		parts = directory{below}
	} else if !info.Mode().IsRegular() {
		return nil, tree.Invalid(ref.file+" in the server's directory of image files is neither a file nor a directory", nil)
	} else if parts, err = openArchive(ctx, root, ref.file); err != nil {
		return nil, err
	}
	s, err := readFile(parts, ref)
	if err != nil {
		_ = parts.Close()
		return nil, err
	}
	s.parts = parts
	return s, nil
}

func readFile(parts blobs, ref reference) (*source, error) {
	index, err := readPart(parts, "index.json")
	if err == nil {
		return readLayout(parts, index, ref.tag)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	manifests, err := readPart(parts, "manifest.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, tree.Invalid(ref.file+" is neither an OCI layout, nor an archive of one, nor an archive of docker save (decompress compressed ones)", nil)
	}
	if err != nil {
		return nil, err
	}
	return readSaved(parts, manifests, ref.tag)
}

const maxNesting = 4

func readLayout(parts blobs, raw []byte, tag string) (*source, error) {
	for range maxNesting {
		index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil {
			return nil, tree.Invalid("its index can't be read", err)
		}
		chosen, err := choose(index.Manifests, tag)
		if err != nil {
			return nil, err
		}
		if raw, err = readPart(parts, blobName(chosen.Digest)); err != nil {
			return nil, missing("manifest", err)
		}
		if err := matches("manifest", raw, chosen.Digest); err != nil {
			return nil, err
		}
		if chosen.MediaType.IsIndex() {
			tag = "" // the tag was the index's
			continue
		}
		return readManifest(parts, raw)
	}
	return nil, tree.Invalid("its indexes are nested too deeply", nil)
}

// choose returns the manifest that has the tag and is for this machine's platform. If tag is "",
// every manifest for this platform fits.
func choose(all []v1.Descriptor, tag string) (v1.Descriptor, error) {
	var fit []v1.Descriptor
	var names []string
	for _, m := range all {
		name := m.Annotations["org.opencontainers.image.ref.name"]
		names = append(names, name)
		full := m.Annotations["io.containerd.image.name"]
		if (tag == "" || tag == name || tag == full) && (m.Platform == nil || m.Platform.Satisfies(localPlatform())) {
			fit = append(fit, m)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0:
		return v1.Descriptor{}, tree.Invalid(fmt.Sprintf("it has no image %q for %s; it has %q", tag, localPlatform(), names), nil)
	default:
		return v1.Descriptor{}, tree.Invalid(fmt.Sprintf("it has several images: name one of %q after a #", names), nil)
	}
}

func readManifest(parts blobs, raw []byte) (*source, error) {
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, tree.Invalid("its manifest can't be read", err)
	}
	config, err := readPart(parts, blobName(manifest.Config.Digest))
	if err != nil {
		return nil, missing("configuration", err)
	}
	return newSource(raw, config, localPlatform(), func(l v1.Descriptor) func() (io.ReadCloser, error) {
		return layerOpener(parts, blobName(l.Digest))
	})
}

func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// layerOpener returns a function that opens a layer, for layer.open.
func layerOpener(parts blobs, name string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		content, _, err := parts.open(name)
		if err != nil {
			return nil, missing("layer", err)
		}
		return content, nil
	}
}

// readSaved reads the format of "docker save" before it wrote layouts. It has no manifest whose
// digest could pin the image. So the configuration's digest pins it, which covers the contents of
// the layers.
func readSaved(parts blobs, raw []byte, tag string) (*source, error) {
	var all []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, tree.Invalid("its manifest.json can't be read", err)
	}
	var names []string
	for _, m := range all {
		names = append(names, m.RepoTags...)
		// Without a tag, the archive must hold a single image.
		if (tag != "" || len(all) != 1) && !slices.Contains(m.RepoTags, tag) {
			continue
		}
		config, err := readPart(parts, m.Config)
		if err != nil {
			return nil, missing("configuration", err)
		}
		s, err := configured(config, localPlatform(), len(m.Layers))
		if err != nil {
			return nil, err
		}
		s.digest = digestOf(config).String()
		for i, name := range m.Layers {
			content, size, err := parts.open(name)
			if err != nil {
				return nil, missing("layer", err)
			}
			_ = content.Close()
			s.layers = append(s.layers, layer{size: size, diffID: s.config.RootFS.DiffIDs[i], open: layerOpener(parts, name)})
		}
		return s, nil
	}
	return nil, tree.Invalid(fmt.Sprintf("it has several images: name one of %q after a #", names), nil)
}

func readPart(parts blobs, name string) ([]byte, error) {
	content, size, err := parts.open(name)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if size > maxDocument {
		return nil, tree.TooLarge("%s is too large: %d bytes", name, size)
	}
	return io.ReadAll(content)
}

// missing returns err, or an error for clients that names the part if err is fs.ErrNotExist.
func missing(what string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return tree.Invalid("its "+what+" is missing", err)
}

type directory struct{ *os.Root }

// open implements blobs. Only regular files are parts.
func (d directory) open(name string) (io.ReadCloser, int64, error) {
	file, err := d.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a pipe, whose opening would block
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// An archive is an uncompressed tar file with an index of its entries.
type archive struct {
	file    *os.File
	entries map[string]span
}

type span struct{ at, size int64 }

// maxParts bounds the entries of an archive: a layer has one to three entries.
const maxParts = 10 * maxLayers

func openArchive(ctx context.Context, root *os.Root, name string) (*archive, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	a := &archive{file: file, entries: map[string]span{}}
	if err := a.index(ctx); err != nil {
		_ = file.Close()
		if tree.HasMessage(err) {
			return nil, err
		}
		return nil, tree.Invalid(name+" is no tar archive (decompress a compressed one)", err)
	}
	return a, nil
}

// index reads the archive's headers. Links are resolved to the entries that they name.
func (a *archive) index(ctx context.Context) error {
	links := map[string]string{}
	reader := tar.NewReader(a.file) // it seeks if it can
	for {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Next doesn't read ahead: the file's offset is that of the entry's contents.
		at, err := a.file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		switch header.Typeflag {
		case tar.TypeReg:
			a.entries[name] = span{at, header.Size}
		case tar.TypeSymlink: // older versions of docker save wrote identical layers as links
			links[name] = path.Join(path.Dir(name), header.Linkname)
		case tar.TypeLink:
			links[name] = path.Clean(header.Linkname)
		}
		if len(a.entries)+len(links) > maxParts {
			return tree.TooLarge("the archive has more than %d entries", maxParts)
		}
	}
	for name, to := range links {
		if target, ok := a.entries[to]; ok {
			a.entries[name] = target
		}
	}
	return nil
}

// open implements blobs. Parts share the archive's file, which only Close closes.
func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	s, ok := a.entries[strings.TrimPrefix(path.Clean(name), "/")]
	if !ok {
		return nil, 0, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return io.NopCloser(io.NewSectionReader(a.file, s.at, s.size)), s.size, nil
}

func (a *archive) Close() error { return a.file.Close() }
