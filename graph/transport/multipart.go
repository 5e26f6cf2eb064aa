package transport

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// PreflightHeaders are headers of which a multipart request must have one. A form can send
// multipart requests to a server from any page. But it can't set these headers without the browser
// asking the server first. Apollo and other clients send them.
var PreflightHeaders = []string{"GraphQL-Require-Preflight", "Apollo-Require-Preflight", "X-Apollo-Operation-Name"}

const typeMultipart = "multipart/form-data"

func isMultipart(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == typeMultipart
}

// afterwards reads the rest of a body before a response is written.
type afterwards struct {
	http.ResponseWriter
	body *clients.Body
}

// Unwrap supports http.ResponseController.
func (w afterwards) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w afterwards) WriteHeader(status int) {
	w.body.Drain()
	w.ResponseWriter.WriteHeader(status)
}

// readMultipart reads a mutation that uploads files, by the GraphQL multipart request specification:
// the parts operations and map. The mutation then runs while the files arrive. Only one buffer of them
// is held, and they are read as fast as the resolver does.
func (s Settings) readMultipart(w http.ResponseWriter, r *http.Request, body *clients.Body, h *reservation) (*graphql.RawParams, int, error) {
	if !slices.ContainsFunc(PreflightHeaders, func(name string) bool { return r.Header.Get(name) != "" }) {
		return nil, http.StatusForbidden, runtime.Errorf(runtime.CodeForbidden,
			"a multipart request needs the header %s: 1 (or %s), so that no other site's page can send it", PreflightHeaders[0], strings.Join(PreflightHeaders[1:], ", or "))
	}
	_, args, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // isMultipart has parsed it
	if args["boundary"] == "" {
		return nil, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput, "the Content-Type has no boundary")
	}
	// Only the parts before the files have a time limit as a whole.
	body.SetEnd(time.Now().Add(clients.MaxBodyTime))
	defer body.SetEnd(time.Time{})
	parts := multipart.NewReader(body.Buffered(), args["boundary"])
	operations, status, err := s.field(w, body, parts, h, "operations", s.MaxBody)
	if err != nil {
		return nil, status, err
	}
	if strings.HasPrefix(strings.TrimLeft(string(operations[:min(len(operations), 64)]), " \t\r\n"), "[") {
		return nil, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput, "operations must be one operation: lists of operations aren't supported")
	}
	params, err := h.decodeParams(r.Context(), operations)
	if err != nil {
		return nil, statusOf(w, err, http.StatusServiceUnavailable, http.StatusBadRequest), err
	}
	text, status, err := s.field(w, body, parts, h, "map", min(maxMap, s.MaxBody))
	if err != nil {
		return nil, status, err
	}
	return params, http.StatusBadRequest, insertUploads(params, text, &files{body: body, parts: parts, named: map[string]bool{}, opened: map[string]bool{}})
}

// field reads the next part, which must have this name and at most most bytes.
func (s Settings) field(w http.ResponseWriter, body *clients.Body, parts *multipart.Reader, h *reservation, name string, most int64) ([]byte, int, error) {
	part, err := parts.NextRawPart()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, http.StatusBadRequest, body.BrokenOff(err)
	}
	if err != nil || part.FormName() != name {
		return nil, http.StatusBadRequest, runtime.Errorf(runtime.CodeInvalidInput, "the parts must be operations, map, then the files, in this order: %s is in the wrong place", name)
	}
	text, err := h.Read(part, -1, most)
	switch {
	case errors.Is(err, clients.ErrTooLong):
		return nil, http.StatusRequestEntityTooLarge, runtime.Errorf(runtime.CodeLimitExceeded, "the part %s must be at most %d bytes", name, most)
	case err != nil:
		return nil, statusOf(w, err, http.StatusServiceUnavailable, http.StatusBadRequest), body.BrokenOff(err)
	}
	return text, 0, nil
}

// The limits of the part map.
const (
	maxMap       = 256 << 10 // bytes: decoding takes a multiple that isn't counted
	maxFiles     = 100       // of a request
	maxPathBytes = 1000      // of a path of the map
)

// insertUploads puts an Upload at each path of the map.
func insertUploads(params *graphql.RawParams, text []byte, all *files) error {
	var wanted map[string][]string
	if err := decode(text, &wanted); err != nil {
		return runtime.Errorf(runtime.CodeInvalidInput, `map must be an object whose values are lists of paths, for example {"0": ["variables.file"]}`)
	}
	if len(wanted) > maxFiles {
		return runtime.Errorf(runtime.CodeLimitExceeded, "a request has at most %d files", maxFiles)
	}
	for key, paths := range wanted {
		all.named[key] = false
		for _, path := range paths {
			if len(path) > maxPathBytes { // splitting it could take a multiple of it
				return runtime.Errorf(runtime.CodeInvalidInput, "map has a path of %d bytes: it must be at most %d", len(path), maxPathBytes)
			}
			if !put(params.Variables, strings.Split(path, "."), Upload{all, key}) {
				return runtime.Errorf(runtime.CodeInvalidInput, "map has the path %q, but operations has no null there below variables", path)
			}
		}
	}
	return nil
}

// put replaces the null at a path that begins with "variables". It reports whether there was one.
func put(variables map[string]any, path []string, file Upload) bool {
	if len(path) < 2 || path[0] != "variables" {
		return false
	}
	var at any = variables
	for i, name := range path[1:] {
		last := i == len(path)-2
		switch in := at.(type) {
		case map[string]any:
			value, there := in[name]
			if last && there && value == nil {
				in[name] = file
				return true
			}
			at = value
		case []any:
			index, err := strconv.Atoi(name)
			if err != nil || index < 0 || index >= len(in) {
				return false
			}
			if last && in[index] == nil {
				in[index] = file
				return true
			}
			at = in[index]
		default:
			return false
		}
	}
	return false
}

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
