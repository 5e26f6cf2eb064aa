package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
)

// TestTreeThatChangesWhileItIsCopied changes what comes later while the first
// file is sent: nothing waits, and what isn't copied is named.
func TestTreeThatChangesWhileItIsCopied(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := os.WriteFile(at("a"), make([]byte, smallFile+1), 0o600)
	for _, name := range []string{"d/gone", "fifo", "gone", "z"} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at(name)), 0o700), os.WriteFile(at(name), []byte("content of "+name), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(&sent, r.Body)
		if r.Header.Get("Content-Type") != "application/json" {
			err = errors.Join(err, os.RemoveAll(at("d")), os.Remove(at("gone")), os.Remove(at("fifo")), syscall.Mkfifo(at("fifo"), 0o600))
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, `{"data": {"uploadFile": {"file": {"size": 1}}, "updateFiles": {"failed": []}}}`)
	}))
	defer server.Close()
	var errs bytes.Buffer
	c := &copier{client: client.New(server.URL), runner: "r", progress: newProgress(io.Discard, true), Streams: Streams{Err: &errs}}
	b := batch{copier: c}
	if err := errors.Join(b.tree(t.Context(), dir, "there"), b.flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := c.complain(); err == nil || !strings.HasPrefix(err.Error(), "3 left out") {
		t.Error(err)
	}
	for _, name := range []string{"d", "gone", "fifo"} {
		if !strings.Contains(errs.String(), at(name)+" is left out") {
			t.Errorf("%s isn't named: %s", name, errs.String())
		}
	}
	if text := sent.String(); !strings.Contains(text, `"there/z"`) || strings.Contains(text, `"there/gone"`) || strings.Contains(text, `"there/fifo"`) {
		t.Error("what was sent isn't what there is")
	}
}

// TestNothingWaitsForAFIFO has one where a file was when it was looked at.
func TestNothingWaitsForAFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	b := batch{copier: &copier{}}
	if err := b.file(t.Context(), fifo, "there"); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Error(err)
	}
	if _, err := os.Lstat(fifo); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestClaimTellsItsKey breaks every connection.
func TestClaimTellsItsKey(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	_, err := claim(ctx, Streams{Err: io.Discard}, client.New(server.URL), claiming{environment: "e", wait: time.Second, key: "mine"})
	if err == nil || !strings.Contains(err.Error(), "--key mine") {
		t.Error(err)
	}
	server.Close()
	_, err = claim(t.Context(), Streams{Err: io.Discard}, client.New(server.URL), claiming{environment: "e", wait: time.Second, key: "mine"})
	if !errors.Is(err, errNoServer) || strings.Contains(err.Error(), "--key") {
		t.Error(err)
	}
}
