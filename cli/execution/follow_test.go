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
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/client"
)

// A server that is lost is one error, in words: with what becomes of the runner, and how the program's end is found out.
func TestALostServerIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs bytes.Buffer
		j := &Job{Follower: Follower{Out: io.Discard, Err: &errs, Client: client.NewSocket("/nonesuch/socket"), Execution: "x"}, Runner: "r"}
		_, err := j.Follow(t.Context())
		err = j.release(err)
		if want := "the server at http://localhost can't be reached any more: no such file or directory; once the server is back, `rockpool exec show x` says how the program ended; its runner goes by itself 60 s later"; err == nil || err.Error() != want {
			t.Error(err)
		}
		if strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), "the connection broke") {
			t.Errorf("%q", errs.String())
		}
		errs.Reset()
		if other := errors.New("other"); j.release(other) != other || errs.String() != "rockpool: the runner could not be released, and goes by itself in 60 s: no such file or directory\n" {
			t.Errorf("%q", errs.String())
		}
	})
}

// TestRunSaysWhatBecomesOfItsRunner has a server that answers the claim, and is gone then.
func TestRunSaysWhatBecomesOfItsRunner(t *testing.T) {
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
		if want := "the server at http://localhost can't be reached any more: no such file or directory; its runner goes by itself 60 s later"; err == nil || err.Error() != want || errs.Len() > 0 {
			t.Errorf("%v, %q", err, errs.String())
		}
	})
}

func TestWordsMoveNoCursor(t *testing.T) {
	var errs bytes.Buffer
	(&Follower{Err: &errs, newline: "\r\n"}).Say("%s", "one\x1b\ntwo")
	if errs.String() != "rockpool: one·\r\ntwo\r\n" {
		t.Errorf("%q", errs.String())
	}
}
