package routes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/test/wait"
)

// running returns a log in a file, and writes it until the test ends.
func running(t *testing.T) (l *Log, path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "access.log")
	l, err := OpenLog(path, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	ended := false
	end = func() {
		if !ended {
			ended = true
			cancel()
			<-done
			l.Close()
		}
	}
	t.Cleanup(end)
	return l, path, end
}

func read(t *testing.T, path string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text := range bytes.Lines(text) {
		var one line
		if err := json.Unmarshal(text, &one); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, one)
	}
	return lines
}

func TestLinesHaveNoSecrets(t *testing.T) {
	l, path, end := running(t)
	server := httptest.NewUnstartedServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hijacked":
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		case "/aborted":
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		case "/silent":
		case "/graphql":
			Operation(r.Context(), "query", "Runners")
			Operation(r.Context(), "query", "Runners")
			Operation(r.Context(), "subscription", strings.Repeat("x", 1000))
			for i := range 100 {
				Operation(r.Context(), "mutation", fmt.Sprint("m", i))
			}
		default:
			w.WriteHeader(http.StatusTeapot)
			control := http.NewResponseController(w)
			for _, err := range []error{control.Flush(), control.SetWriteDeadline(time.Now().Add(time.Hour)), control.SetReadDeadline(time.Time{})} {
				if err != nil {
					t.Error(err)
				}
			}
			_, _ = io.WriteString(w, "12345")
		}
	})))
	server.Config.ConnContext = clients.ConnContext
	server.Start()
	defer server.Close()
	const secret = "canary-8c1f"
	for i, address := range []string{"/files/a%20b?signature=" + secret, "/silent", "/hijacked", "/aborted", "/graphql?variables=" + secret} {
		r, err := http.NewRequest(http.MethodPost, server.URL+address, strings.NewReader(secret))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + secret}, "Cookie": {"a=" + secret}, "User-Agent": {`"agent"`}, "Referer": {"http://x/?" + secret}}
		if response, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		wait.For(t, "it is logged", func() bool { return len(read(t, path)) > i })
	}
	end()
	lines := read(t, path)
	if len(lines) != 5 {
		t.Fatalf("%+v", lines)
	}
	for i, want := range []line{
		{Path: "/files/a%20b", Status: http.StatusTeapot, Bytes: 5}, {Path: "/silent", Status: http.StatusOK},
		{Path: "/hijacked", Status: http.StatusSwitchingProtocols}, {Path: "/aborted", Status: http.StatusOK, Bytes: 4},
	} {
		got := lines[i]
		if got.Path != want.Path || got.Status != want.Status || got.Bytes != want.Bytes || got.Client.String() != "127.0.0.1" || got.Method != http.MethodPost ||
			got.Protocol != "HTTP/1.1" || got.Agent != `"agent"` || time.Since(got.Time) > wait.Limit || got.Millis < 0 {
			t.Errorf("%+v", got)
		}
	}
	if got := lines[4].Operations; len(got) != maxOperations || got[0] != (operation{"query", "Runners"}) || got[1] != (operation{"subscription", strings.Repeat("x", maxName)}) || got[2] != (operation{"mutation", "m0"}) {
		t.Errorf("%+v", got)
	}
	Operation(t.Context(), "query", "of a request that isn't logged")
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte(secret)) {
		t.Errorf("a secret is in %s, %v", text, err)
	}
}

// TestLinesCannotBeForged: a client's text can neither control a terminal nor start another line.
func TestLinesCannotBeForged(t *testing.T) {
	l, path, end := running(t)
	const evil = "<script>\u202etxt\u009b2J\x7f\u2028é\U000e0041\\u001b\n{\x1b[2J"
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("User-Agent", evil)
	r.Method, r.URL.Path = evil[:maxMethod], evil
	l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { Operation(r.Context(), "query", evil) })).ServeHTTP(httptest.NewRecorder(), r)
	end()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if rest := bytes.TrimFunc(text, func(r rune) bool { return r >= ' ' && r < 0x7f }); string(rest) != "\n" {
		t.Errorf("it isn't one line of ASCII: %q", text)
	}
	if bytes.Contains(text, []byte("<script>")) {
		t.Errorf("%s", text)
	}
	got := read(t, path)[0]
	if got.Agent != evil || len(got.Operations) != 1 || got.Operations[0].Name != evil || got.Method != evil[:maxMethod] || !strings.Contains(got.Path, "%1B") {
		t.Errorf("%+v", got)
	}
}

func TestARenamedFileIsReplacedByANewOne(t *testing.T) {
	l, path, end := running(t)
	served := l.Handler(http.NotFoundHandler())
	serve := func(path string) {
		served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	serve("/before")
	wait.For(t, "the first line is written", func() bool { return len(read(t, path)) == 1 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "there is a new file", func() bool {
		serve("/after")
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0
	})
	end()
	if lines := read(t, path+".1"); lines[0].Path != "/before" {
		t.Errorf("%+v", lines)
	}
	if lines := read(t, path); lines[0].Path != "/after" {
		t.Errorf("%+v", lines)
	}
}

// TestASlowDiskBlocksNoRequest: requests don't wait for writes, and the number of queued lines is bounded.
func TestASlowDiskBlocksNoRequest(t *testing.T) {
	l := StdoutLog(zap.NewNop()) // never run
	for range 2 * maxWaiting / 100 {
		l.add(bytes.Repeat([]byte("x"), 100))
	}
	if len(l.waiting) > maxWaiting || l.lost == 0 {
		t.Errorf("%d bytes wait, %d lines are lost", len(l.waiting), l.lost)
	}
}

// TestTheLastLinesAreWritten when a server stops.
func TestTheLastLinesAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	l, err := OpenLog(path, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	l.add([]byte(`{"path": "/last"}`))
	<-l.wake
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Run(ctx)
	l.Close()
	if lines := read(t, path); len(lines) != 1 || lines[0].Path != "/last" {
		t.Errorf("%+v", lines)
	}
}

func BenchmarkHandler(b *testing.B) {
	l, err := OpenLog(filepath.Join(b.TempDir(), "access.log"), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	served := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/graphql?x=y", nil)
	r.RemoteAddr = net.IPv4(192, 0, 2, 7).String()
	for b.Loop() {
		served.ServeHTTP(w, r)
	}
	cancel()
	<-done
	l.Close()
}

// TestAnUnreadStreamDelaysNeitherCloseNorLines checks a log on a stream that nobody reads.
func TestAnUnreadStreamDelaysNeitherCloseNorLines(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := newLog(disk.StreamLines(write), zap.NewNop())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	for range 3 * maxWaiting / 1000 { // more than a pipe takes
		l.add(make([]byte, 1000))
	}
	stop()
	wait.For(t, "it writes", l.began.Load)
	l.Close()
	_ = read.Close() // the write fails now
	<-ended
	_ = write.Close()
}
