package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"time"
)

// Prefix is the path prefix of everything that Files serves.
const Prefix = "/agent/"

// Arches are the architectures for which agents are built, named as in GOARCH.
var Arches = []string{"amd64", "arm64"}

// Files serves each agent and each agent's archive to everybody, at Prefix followed by its SHA-256
// in hexadecimal. The content of an address never changes, so that Nomad can fetch it hours later.
// It is safe for concurrent use.
type Files struct {
	files    map[string]file
	archives map[string]string // names by architecture
}

// A file is what Files serves at one address. Each open returns a reader of its own.
type file struct {
	open func() (*io.SectionReader, error)
	kind string
}

// NewFiles returns a handler for the embedded agents.
func NewFiles() (*Files, error) {
	f := &Files{files: map[string]file{}, archives: map[string]string{}}
	for _, arch := range Arches {
		if _, err := f.add("application/octet-stream", func() (*io.SectionReader, error) { return open(arch) }); err != nil {
			return nil, err
		}
		name, err := f.add("application/x-tar", func() (*io.SectionReader, error) { return Archive(arch) })
		if err != nil {
			return nil, err
		}
		f.archives[arch] = name
	}
	return f, nil
}

// add makes a content available at its checksum, which is its name. Kind is its media type.
func (f *Files) add(kind string, open func() (*io.SectionReader, error)) (name string, err error) {
	content, err := open()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, content); err != nil {
		return "", err
	}
	name = hex.EncodeToString(sum.Sum(nil))
	f.files[name] = file{open, kind}
	return name, nil
}

// ArchiveSum returns the SHA-256 of an architecture's archive in hexadecimal; "" if there is none.
func (f *Files) ArchiveSum(arch string) string { return f.archives[arch] }

// ServeHTTP implements http.Handler.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	found, ok := f.files[name]
	switch {
	case !ok:
		http.Error(w, "this server has no agent with this checksum", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET or HEAD to fetch an agent", http.StatusMethodNotAllowed)
		return
	}
	content, err := found.open()
	if err != nil {
		http.Error(w, "the agent can't be read", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", found.kind)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("ETag", `"`+name+`"`)
	http.ServeContent(w, r, "", time.Time{}, content)
}
