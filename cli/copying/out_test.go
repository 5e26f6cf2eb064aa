package copying

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
)

func TestBaseInRunner(t *testing.T) {
	for from, want := range map[string]string{"": "workspace", ".": "workspace", "/": ".", "..": ".", "../..": ".", "a/..": "workspace", "/tmp/core": "core", "dir/": "dir"} {
		if got := baseInRunner(from); got != want {
			t.Errorf("%q: got %q, want %q", from, got, want)
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

// TestDownloadsWaitForARestartingServer has a server that is unavailable when a tree is listed, and
// when a file is fetched.
func TestDownloadsWaitForARestartingServer(t *testing.T) {
	for name, files := range map[string]string{"tree": `[]`, "file": ""} {
		socket, errs := refusing(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case r.Method == http.MethodGet:
				_, _ = io.WriteString(w, "content")
			case strings.Contains(string(body), "GetFiles"):
				_, _ = io.WriteString(w, `{"data": {"runner": {"files": {"nodes": `+files+`, "pageInfo": {"hasNextPage": false}}}}}`)
			default:
				_, _ = io.WriteString(w, `{"data": {"runner": {"file": {"path": "x", "size": 7, "downloadUrl": "/x"}}}}`)
			}
		})
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		c := &Copier{Client: client.NewSocket(socket), Runner: "r", progress: newProgress(io.Discard, true), Stderr: errs}
		if files != "" {
			err = c.fetchTree(t.Context(), root, name, "x")
		} else {
			err = c.fetch(t.Context(), root, name, "x", "0644")
		}
		_, gone := root.Stat(name)
		if err = errors.Join(err, gone, root.Close()); err != nil || strings.Count(errs.text, "the connection broke") != 1 {
			t.Errorf("%s: %v, %q", name, err, errs.text)
		}
	}
}

// TestAGoneRunnerEndsADownload immediately: no connection broke.
func TestAGoneRunnerEndsADownload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data": {"runner": null}}`) }))
	defer server.Close()
	c := &Copier{Client: client.New(server.URL), Runner: "r"}
	if _, err := c.stat(t.Context(), "x"); err == nil || client.Passing(err) || !strings.Contains(err.Error(), `"r"`) {
		t.Errorf("got %v, want a lasting error that names the runner", err)
	}
}

// TestFailedWritesEndADownload checks that a full disk isn't retried for a minute.
func TestFailedWritesEndADownload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }))
	defer server.Close()
	c := &Copier{Client: client.New(server.URL), progress: newProgress(io.Discard, true)}
	address := "/files/x"
	err := c.content(t.Context(), &client.DownloadableFile{DownloadUrl: &address}, full{}, io.Discard)
	if err == nil || client.Passing(err) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got %v, want the writer's error", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }
