package cli

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/rockpool/rockpool/client"
)

// A receiver takes uploads, and breaks the first few in the middle.
type receiver struct {
	cut      atomic.Int64
	attempts atomic.Int64
	sum      [sha256.Size]byte // of the file that came whole
}

func (u *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.attempts.Add(1)
	parts, err := r.MultipartReader()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return // the client broke it
		}
		if part.FormName() != "0" {
			continue
		}
		sum := sha256.New()
		if u.cut.Add(-1) >= 0 {
			_, _ = io.CopyN(sum, part, 300_000)
			panic(http.ErrAbortHandler)
		}
		if _, err := io.Copy(sum, part); err != nil {
			return
		}
		copy(u.sum[:], sum.Sum(nil))
	}
	_, _ = io.WriteString(w, `{"data": {"uploadFile": {"file": {"size": 1}}}}`)
}

func TestUploadBeginsAnewWhereItCan(t *testing.T) {
	data := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, test := range []struct {
		name     string
		content  io.Reader
		size     int64
		cut      int64
		attempts int64 // at most
		says     string
	}{
		{"a file", file, int64(len(data)), 3, 4, ""},
		{"a pipe can't begin anew", io.MultiReader(bytes.NewReader(data)), -1, 1, 1, "Post"},
		{"a file that shrinks", io.NewSectionReader(file, 0, 100), 200, 0, 1, "shorter"},
		{"a file that grows", io.NewSectionReader(file, 0, 300_000), 200_000, 0, 1, "grows"},
		{"a disk that fails", iotest.ErrReader(errors.New("bad block")), 200, 0, 1, "bad block"},
	} {
		// Each has a receiver of its own: a request that broke may reach it late.
		took := &receiver{}
		took.cut.Store(test.cut)
		server := httptest.NewUnstartedServer(took)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Start()
		c := &copier{client: client.New(server.URL), runner: "r", progress: newProgress(io.Discard, true)}
		err := c.stream(t.Context(), test.content, test.size, "there", "0644")
		server.Close() // waits for what it is answering
		switch whole := took.sum == sha256.Sum256(data); {
		case took.attempts.Load() > test.attempts:
			t.Errorf("%s: %d attempts", test.name, took.attempts.Load())
		case test.says == "" && (err != nil || !whole || took.attempts.Load() != test.attempts):
			t.Errorf("%s: %v after %d attempts, whole %v", test.name, err, took.attempts.Load(), whole)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestBaseInRunner(t *testing.T) {
	for from, want := range map[string]string{"": "workspace", ".": "workspace", "/": ".", "..": ".", "../..": ".", "a/..": "workspace", "/tmp/core": "core", "dir/": "dir"} {
		if got := baseInRunner(from); got != want {
			t.Errorf("%q: %q", from, got)
		}
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.MkdirAll(baseInRunner("/"), 0o777); err != nil {
		t.Error(err)
	}
	below, err := root.OpenRoot(baseInRunner("/"))
	if err != nil {
		t.Fatal(err)
	}
	_ = below.Close()
}

// A disk that is full isn't tried for a minute.
func TestDownloadEndsWhereItCannotBeWritten(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }))
	defer server.Close()
	c := &copier{client: client.New(server.URL), progress: newProgress(io.Discard, true)}
	address := "/files/x"
	err := c.content(t.Context(), &client.DownloadableFile{DownloadUrl: &address}, full{}, io.Discard)
	if err == nil || client.Passing(err) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }
