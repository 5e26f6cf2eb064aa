package image

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/rockpool/rockpool/runtime"
)

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
