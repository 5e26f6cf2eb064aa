package copying

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
)

// A receiver accepts uploads and breaks the first few in the middle.
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

func TestUploadsRestartWherePossible(t *testing.T) {
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
		{"a pipe can't restart", io.MultiReader(bytes.NewReader(data)), -1, 1, 1, "incomplete"},
		{"a file that shrinks", io.NewSectionReader(file, 0, 100), 200, 0, 1, "shorter"},
		{"a file that grows", io.NewSectionReader(file, 0, 300_000), 200_000, 0, 1, "grew"},
		{"a disk that fails", iotest.ErrReader(errors.New("bad block")), 200, 0, 1, "bad block"},
	} {
		// Each test has its own receiver: a broken request may arrive late.
		took := &receiver{}
		took.cut.Store(test.cut)
		server := httptest.NewUnstartedServer(took)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Start()
		c := &Copier{Client: client.New(server.URL), Runner: "r", progress: newProgress(io.Discard, true), Stderr: io.Discard}
		err := c.stream(t.Context(), test.content, test.size, "there", "0644")
		server.Close() // waits for what it is answering
		switch whole := took.sum == sha256.Sum256(data); {
		case took.attempts.Load() > test.attempts:
			t.Errorf("%s: %d attempts", test.name, took.attempts.Load())
		case test.says == "" && (err != nil || !whole || took.attempts.Load() != test.attempts):
			t.Errorf("%s: %v after %d attempts, whole %v", test.name, err, took.attempts.Load(), whole)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: got %v, want %q", test.name, err, test.says)
		}
	}
}

// A startingWriter is a writer that calls start when the first line is written to it.
type startingWriter struct {
	start func()
	text  string
}

func (s *startingWriter) Write(p []byte) (int, error) {
	if s.text == "" {
		s.start()
	}
	s.text += string(p)
	return len(p), nil
}

// refusing returns a socket that refuses connections until the first line is written to errs.
// Afterwards handler serves it.
func refusing(t *testing.T, handler http.HandlerFunc) (socket string, errs *startingWriter) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err == nil {
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		err = listener.Close() // what remains refuses connections
	}
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	t.Cleanup(server.Close)
	return socket, &startingWriter{start: func() {
		if server.Listener, err = net.Listen("unix", filepath.Join(filepath.Dir(socket), "new")); err == nil {
			err = os.Rename(filepath.Join(filepath.Dir(socket), "new"), socket)
		}
		if err != nil {
			t.Error(err)
			return
		}
		server.Start()
	}}
}

func TestUploadsWaitForARestartingServer(t *testing.T) {
	for _, size := range []int64{1, smallFile + 1} { // with others in one call, and in its own
		from := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(from, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		socket, errs := refusing(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, `{"data": {"uploadFile": {"file": {"size": 1}}, "updateFiles": {"failed": []}}}`)
		})
		c := &Copier{Client: client.NewSocket(socket), Runner: "r", progress: newProgress(io.Discard, true), Stderr: errs}
		b := batch{Copier: c}
		if err := errors.Join(b.file(t.Context(), from, "there"), b.flush(t.Context())); err != nil || strings.Count(errs.text, "the connection broke") != 1 {
			t.Errorf("%d bytes: %v, %q", size, err, errs.text)
		}
	}
}

// TestStandardInputNeedsAServer checks that it isn't read before the server is reached.
func TestStandardInputNeedsAServer(t *testing.T) {
	socket, errs := refusing(t, nil)
	c := &Copier{Client: client.NewSocket(socket), Runner: "r", Stdin: iotest.ErrReader(errors.New("it was read")), Stderr: errs}
	if err := c.In(t.Context(), "-", "there"); !errors.Is(err, command.ErrNoServer) || errs.text != "" {
		t.Errorf("%v, %q", err, errs.text)
	}
}

// TestATemporaryRefusalIsNotABrokenConnection: the server responded.
func TestATemporaryRefusalIsNotABrokenConnection(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			_, _ = io.WriteString(w, `{"errors": [{"message": "full", "extensions": {"code": "QUOTA_EXCEEDED"}}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"data": {"updateFiles": {"failed": []}}}`)
	}))
	defer server.Close()
	var errs bytes.Buffer
	c := &Copier{Client: client.New(server.URL), Runner: "r", progress: newProgress(io.Discard, true), Stderr: &errs}
	b := batch{Copier: c, writes: []client.FileInput{{Path: "a"}}}
	if err := b.flush(t.Context()); err != nil || errs.Len() > 0 || asked.Load() != 2 {
		t.Errorf("%v, %q after %d attempts", err, errs.String(), asked.Load())
	}
}

func TestLostUploadsSayWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Copier{Client: client.NewSocket("/nonesuch/socket"), Runner: "r", progress: newProgress(io.Discard, true), Stderr: io.Discard}
		b := batch{Copier: c, writes: []client.FileInput{{Path: "a"}}}
		err := b.flush(t.Context())
		if err == nil || !strings.Contains(err.Error(), syscall.ENOENT.Error()) || !strings.Contains(err.Error(), "repeat the command") {
			t.Errorf("got %v, want %v and the next step", err, syscall.ENOENT)
		}
	})
}

// TestTreeThatChangesDuringTheCopy changes later files while the first one is sent. The copy
// doesn't block, and reports the files that it couldn't copy.
func TestTreeThatChangesDuringTheCopy(t *testing.T) {
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
	c := &Copier{Client: client.New(server.URL), Runner: "r", progress: newProgress(io.Discard, true), Stderr: &errs}
	b := batch{Copier: c}
	if err := errors.Join(b.tree(t.Context(), dir, "there"), b.flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := c.incomplete(); err == nil || !strings.Contains(err.Error(), " 3 ") {
		t.Errorf("got %v, want 3 files that aren't copied", err)
	}
	for _, name := range []string{"d", "gone", "fifo"} {
		if !strings.Contains(errs.String(), "couldn't copy "+at(name)+":") {
			t.Errorf("%s isn't named: %s", name, errs.String())
		}
	}
	if text := sent.String(); !strings.Contains(text, `"there/z"`) || strings.Contains(text, `"there/gone"`) || strings.Contains(text, `"there/fifo"`) {
		t.Error("the copied files are wrong")
	}
}

// TestCopyDoesNotBlockOnAFIFO has a FIFO in place of a file.
func TestCopyDoesNotBlockOnAFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	b := batch{Copier: &Copier{}}
	if err := b.file(t.Context(), fifo, "there"); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("got %v, want a refusal of the FIFO", err)
	}
	if _, err := os.Lstat(fifo); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
