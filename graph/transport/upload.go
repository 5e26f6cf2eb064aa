package transport

import (
	"errors"
	"io"
	"mime/multipart"
	"sync"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// An Upload is a file of a multipart request: GraphQL's scalar of the same name. It is read while
// it arrives. So open each Upload once, and in the order in which the files arrive.
type Upload struct {
	files *files
	key   string // the name of its part
}

// Open returns the file's bytes. They are valid until another Upload of the request is opened.
func (u Upload) Open() (io.Reader, error) { return u.files.open(u.key) }

// MarshalUpload is for gqlgen. An Upload is never in a response.
func MarshalUpload(Upload) graphql.Marshaler { return graphql.Null }

// UnmarshalUpload returns what Multipart put into the variables.
func UnmarshalUpload(v any) (Upload, error) {
	if u, ok := v.(Upload); ok && u.files != nil {
		return u, nil
	}
	return Upload{}, runtime.Invalid("", "must be null in a multipart request whose map names a file for it: "+
		"see https://github.com/jaydenseric/graphql-multipart-request-spec")
}

// files are the file parts of a multipart request. One is read at a time.
type files struct {
	mu     sync.Mutex // guards the fields below; a mutation's fields run one after the other
	body   *clients.Body
	parts  *multipart.Reader
	named  map[string]bool // whether the part of this name has arrived
	opened map[string]bool
}

// open moves to the part of this name, and skips those before it.
func (f *files) open(key string) (io.Reader, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.opened[key]:
		return nil, runtime.Invalid("file", "the file %q was used by another field already: send it once for each", key)
	case f.named[key]:
		return nil, runtime.Invalid("file", "the file %q came before another that is used earlier: send the files in the order of the fields that use them", key)
	}
	for {
		part, err := f.parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil, runtime.Invalid("file", "the map names a file %q, but the request has no part of this name after the map", key)
		}
		if err != nil {
			return nil, f.body.BrokenOff(err)
		}
		name := part.FormName()
		if _, known := f.named[name]; known {
			f.named[name] = true
		}
		if name == key {
			f.opened[key] = true
			return part, nil
		}
	}
}
