package execution

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/client"
)

// TestALostServerIsReportedOnce checks that the error says what happens to the runner, and how to
// find out the program's end.
func TestALostServerIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		j := &Job{Follower: Follower{Out: io.Discard, Err: &errs, Client: client.NewSocket("/nonesuch/socket"), Execution: "x"}, Runner: "r"}
		_, err := j.Follow(t.Context())
		err = j.release(err)
		if err == nil || !strings.Contains(err.Error(), syscall.ENOENT.Error()) || !strings.Contains(err.Error(), "`rockpool exec show x`") || !strings.HasSuffix(err.Error(), "60 s later") {
			t.Errorf("got %v, want the cause, the next command, and the release 60 s later", err)
		}
		if strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), "the connection broke") {
			t.Errorf("%q", errs.String())
		}
		errs.Reset()
		if other := errors.New("other"); j.release(other) != other || errs.String() != "rockpool: the runner couldn't be released; the server releases it in 60 s: no such file or directory\n" {
			t.Errorf("%q", errs.String())
		}
	})
}

// TestLostRunsSayWhenTheRunnerIsReleased has a server that is gone after it answered the claim.
func TestLostRunsSayWhenTheRunnerIsReleased(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = os.Remove(socket)
		_, _ = io.WriteString(w, `{"data": {"claimRunner": {"runner": {"id": "r"}}}}`)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	defer server.Close()
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		j := &Job{Follower: Follower{Out: io.Discard, Err: &errs, Client: client.NewSocket(socket)}, Environment: "e", Command: []string{"x"}}
		_, err := j.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), syscall.ENOENT.Error()) || !strings.HasSuffix(err.Error(), "60 s later") || strings.Contains(err.Error(), "exec show") || errs.Len() > 0 {
			t.Errorf("got %v, %q, want the cause, and the release 60 s later", err, errs.String())
		}
	})
}

func TestMessagesDontControlTheTerminal(t *testing.T) {
	var errs bytes.Buffer
	(&Follower{Err: &errs, newline: "\r\n"}).Report("%s", "one\x1b\ntwo")
	if errs.String() != "rockpool: one·\r\ntwo\r\n" {
		t.Errorf("%q", errs.String())
	}
}
