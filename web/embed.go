// Package web serves the dashboard and GraphiQL, which `make build` bundles
// from src and compresses. It is independent of the server: its pages get all
// data from the API.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"path"
	"strings"
)

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
