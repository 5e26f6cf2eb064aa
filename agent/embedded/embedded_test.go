package embedded_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/test/need"
)

func TestBinary(t *testing.T) {
	need.Program(t)
	if _, err := embedded.Binary("pdp11"); err == nil || !strings.Contains(err.Error(), `"make build"`) {
		t.Errorf("error %v", err)
	}
	binary, err := embedded.Binary("amd64")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(binary), "\x7fELF") {
		t.Errorf("begins with %q", binary[:4])
	}
}

func TestArchiveHoldsTheAgentExecutable(t *testing.T) {
	need.Program(t)
	for _, arch := range embedded.Arches {
		archive, err := embedded.Archive(arch)
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(archive)
		header, err := r.Next()
		if err != nil || header.Name != embedded.ArchivedName || header.Mode != 0o755 || header.Uid != 0 {
			t.Fatalf("%+v, %v", header, err)
		}
		content, err := io.ReadAll(r)
		binary, _ := embedded.Binary(arch)
		if err != nil || !bytes.Equal(content, binary) {
			t.Errorf("%d bytes, %v", len(content), err)
		}
		if header, err := r.Next(); err != io.EOF {
			t.Errorf("also %+v, %v, want %v", header, err, io.EOF)
		}
	}
}

func TestFilesAreAtTheirChecksumForEverybody(t *testing.T) {
	need.Program(t)
	files, err := embedded.NewFiles()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		files.ServeHTTP(w, r)
		return w
	}
	for _, arch := range embedded.Arches {
		name := files.ArchiveSum(arch)
		at := embedded.Prefix + name
		w := ask("GET", at, "Accept-Encoding", "gzip")
		content := w.Body.Bytes()
		if got := sha256.Sum256(content); w.Code != 200 || hex.EncodeToString(got[:]) != name {
			t.Errorf("%s: status %d, checksum %x", at, w.Code, got)
		}
		if h := w.Header(); h.Get("Content-Encoding") != "" || h.Get("ETag") != `"`+name+`"` || !strings.Contains(h.Get("Cache-Control"), "immutable") {
			t.Errorf("%v", h)
		}
		if w := ask("HEAD", at); w.Code != 200 || w.Body.Len() > 0 || w.Header().Get("Content-Length") != strconv.Itoa(len(content)) {
			t.Errorf("HEAD: %d, %d bytes, %v", w.Code, w.Body.Len(), w.Header())
		}
		if w := ask("GET", at, "Range", "bytes=500-1499"); w.Code != 206 || !bytes.Equal(w.Body.Bytes(), content[500:1500]) {
			t.Errorf("a range: %d", w.Code)
		}
		if w := ask("GET", at, "If-None-Match", `"`+name+`"`); w.Code != 304 || w.Body.Len() > 0 {
			t.Errorf("one that the client has: %d", w.Code)
		}
		if w := ask("POST", at); w.Code != 405 {
			t.Errorf("POST: got %d, want 405", w.Code)
		}
	}
	for _, path := range []string{"/agent/", "/agent/amd64", "/agent/../server.go", "/agent/" + strings.Repeat("0", 64)} {
		if w := ask("GET", path); w.Code != 404 {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
	}
}
