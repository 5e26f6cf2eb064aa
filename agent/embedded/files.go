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

// Files serves each agent's archive to everybody, at Prefix followed by its SHA-256 in hexadecimal.
// The content of an address never changes, so that Nomad can fetch it hours later. It is safe for
// concurrent use.
type Files struct {
	sums   map[string]string // by architecture
	arches map[string]string // by sum
}

// NewFiles returns a handler for the embedded agents.
func NewFiles() (*Files, error) {
	f := &Files{sums: map[string]string{}, arches: map[string]string{}}
	for _, arch := range Arches {
		archive, err := Archive(arch)
		if err != nil {
			return nil, err
		}
		hash := sha256.New()
		if _, err := io.Copy(hash, archive); err != nil {
			return nil, err
		}
		sum := hex.EncodeToString(hash.Sum(nil))
		f.sums[arch], f.arches[sum] = sum, arch
	}
	return f, nil
}

// ArchiveSum returns the SHA-256 of an architecture's archive in hexadecimal; "" if there is none.
func (f *Files) ArchiveSum(arch string) string { return f.sums[arch] }

// ServeHTTP implements http.Handler.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sum := strings.TrimPrefix(r.URL.Path, Prefix)
	arch, ok := f.arches[sum]
	switch {
	case !ok:
		http.Error(w, "this server has no agent with this checksum", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET or HEAD to fetch an agent", http.StatusMethodNotAllowed)
		return
	}
	content, err := Archive(arch)
	if err != nil {
		http.Error(w, "the agent can't be read", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/x-tar")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("ETag", `"`+sum+`"`)
	http.ServeContent(w, r, "", time.Time{}, content)
}
