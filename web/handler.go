// Package web serves the dashboard and GraphiQL, which `make build` bundles
// from src and compresses. It is independent of the server: its pages get all
// data from the API.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The policies of the pages. A page loads nothing from other hosts, has no inline
// script, and can't make a script from text. GraphiQL's editor writes styles into
// its page and runs workers, so its page allows both. It never shows the output
// of programs.
const (
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
	policyGraphiQL = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; " +
		"connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	policyAsset = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" // workers have the policy of their script
	permissions = "camera=(), microphone=(), geolocation=(), payment=(), usb=(), serial=(), hid=(), midi=(), display-capture=()"
)

// The pages.
const (
	dashboard = "index.html"
	explorer  = "graphiql.html"
)

// sections are the first path elements of the dashboard's addresses. The pages
// themselves interpret the rest.
var sections = []string{"environments", "new-environment", "runners", "executions", "batches", "playground", "terminal", "operations", "scheduling", "access", "share"}

// assets is the prefix of files named after their content, which browsers may
// cache forever.
const assets = "assets/"

const notBuilt = `This server was built without the dashboard. Install node and npm, and run "make build" again.
The API is at /graphql.
`

// Pages are the dashboard and GraphiQL.
type Pages struct{ files map[string]file }

// New returns the pages of the bundle.
func New() Pages {
	bundle, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is a constant
	}
	return Pages{files(bundle)}
}

// Serve responds to requests for the dashboard's addresses. It returns false, and does nothing, for
// others: also for "/" from clients that don't accept HTML, and for "/" with other methods than GET and
// HEAD. At its other addresses it refuses such methods itself.
func (p Pages) Serve(w http.ResponseWriter, r *http.Request) bool {
	name := target(r)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if name == "" || !reads && r.URL.Path == "/" {
		return false
	}
	header := w.Header()
	if !reads {
		header.Set("Allow", "GET, HEAD, OPTIONS")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return true
		}
		http.Error(w, "send GET or HEAD", http.StatusMethodNotAllowed)
		return true
	}
	header.Set("X-Content-Type-Options", "nosniff")
	found, there := p.files[name]
	switch {
	case there:
		serve(w, r, name, found)
	case name == dashboard || name == explorer:
		header.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, notBuilt)
	default:
		http.NotFound(w, r)
	}
	return true
}

// target returns the file for a request; "" if the request isn't for the
// dashboard.
func target(r *http.Request) string {
	name := strings.TrimPrefix(r.URL.Path, "/")
	section, _, _ := strings.Cut(name, "/")
	switch {
	case name == "":
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			return ""
		}
		return dashboard
	case name == "graphiql":
		return explorer
	case name == "theme.js" || strings.HasPrefix(name, assets):
		return name
	case slices.Contains(sections, section):
		return dashboard
	}
	return ""
}

func serve(w http.ResponseWriter, r *http.Request, name string, f file) {
	header := w.Header()
	header.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, assets) {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	header.Set("Content-Security-Policy", policyAsset)
	if name == dashboard || name == explorer {
		header.Set("Content-Security-Policy", policy)
		if name == explorer {
			header.Set("Content-Security-Policy", policyGraphiQL)
		}
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Permissions-Policy", permissions)
		header.Add("Vary", "Accept")
	}
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Add("Vary", "Accept-Encoding")
	header.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.kind)
	body, encoding := f.br, "br"
	switch {
	case accepts(r, "br"):
	case accepts(r, "gzip"):
		body, encoding = f.gz, "gzip"
	default:
		plain, err := unpack(f.gz)
		if err != nil {
			http.Error(w, "the bundle is damaged", http.StatusInternalServerError)
			return
		}
		body, encoding = plain, ""
	}
	if encoding != "" {
		header.Set("Content-Encoding", encoding)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // a client that left needs no answer
	}
}

// accepts reports whether a client accepts an encoding. Browsers send no weights,
// so only a weight of zero matters.
func accepts(r *http.Request, encoding string) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), encoding) {
			q, weighed := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			value, err := strconv.ParseFloat(q, 64)
			return !weighed || err == nil && value > 0
		}
	}
	return false
}

func unpack(gz []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(gz))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// The directory is embedded, not its files, so that the package compiles before
// the bundle is built.
//
//go:embed dist
var dist embed.FS

// file is a file of the bundle in two compressions.
type file struct {
	br, gz []byte
	kind   string // its media type
	tag    string // its ETag, which changes with its bytes
}

// files returns the embedded files by their path below the server's root, for
// example "assets/index-1a2b3c4d.js". Without a build it returns none.
func files(bundle fs.FS) map[string]file {
	all := map[string]file{}
	_ = fs.WalkDir(bundle, ".", func(name string, entry fs.DirEntry, err error) error {
		plain, packed := strings.CutSuffix(name, ".gz")
		if err != nil || entry.IsDir() || !packed {
			return err
		}
		gz, err := fs.ReadFile(bundle, name)
		if err != nil {
			return err
		}
		br, err := fs.ReadFile(bundle, plain+".br")
		if err != nil {
			return err
		}
		sum := sha256.Sum256(gz)
		all[plain] = file{br: br, gz: gz, kind: mediaType(plain), tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	return all
}

// mediaType returns the media type of a file. For the important types it doesn't
// depend on the machine's table.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".graphqls":
		return "text/plain; charset=utf-8"
	case ".ttf":
		return "font/ttf"
	}
	if kind := mime.TypeByExtension(path.Ext(name)); kind != "" {
		return kind
	}
	return "application/octet-stream"
}
