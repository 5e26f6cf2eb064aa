// Package dextest runs Dex, a real provider of OpenID Connect, for tests.
package dextest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/port"
	"github.com/rockpool/rockpool/test/repository"
)

// The values of the example in docs/guides/securing.md.
const (
	ClientID     = "rockpool"
	ClientSecret = "change-me-rockpool"
	Email        = "admin@example.com" // of somebody with a password and without groups
	Password     = "password"
	MockGroup    = "authors" // of the person whom the connector "mock" always signs in
)

// A Server is a Dex on loopback for one test. It has the settings of the example in
// docs/guides/securing.md, and the connector "mock", which signs in the same person without a
// dialog. Only one goroutine may use it.
type Server struct {
	Issuer string

	dir     string
	program string
	process *exec.Cmd     // nil means it isn't running
	input   io.Closer     // closing it ends Dex
	ended   chan struct{} // closed when it has ended
}

// New prepares a Dex that redirects to a URL, without starting it. The first build by scripts/dex
// takes a minute or two.
func New(t testing.TB, redirectURL string) *Server {
	t.Helper()
	need.Sandboxes(t)
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/dex"))
	var said bytes.Buffer
	build.Stderr = &said
	program, err := build.Output()
	if err != nil {
		t.Fatalf("build Dex: %v\n%s", err, said.Bytes())
	}
	address := port.Spare(t)
	s := &Server{Issuer: "http://" + address + "/dex", dir: t.TempDir(), program: strings.TrimSpace(string(program))}
	settings, err := settings(root, address, redirectURL)
	if err == nil {
		err = os.WriteFile(s.settings(), []byte(settings), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Log(s.said())
		}
	})
	return s
}

func (s *Server) settings() string { return filepath.Join(s.dir, "dex.yaml") }
func (s *Server) log() string      { return filepath.Join(s.dir, "log") }

// said returns its log.
func (s *Server) said() string {
	text, _ := os.ReadFile(s.log())
	return string(text)
}

var example = regexp.MustCompile("(?s)```yaml\n(issuer: .*?)```")

// settings returns the example's settings for an address.
func settings(root, address, redirectURL string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs/guides/securing.md"))
	if err != nil {
		return "", err
	}
	found := example.FindSubmatch(text)
	if found == nil {
		return "", errors.New("docs/guides/securing.md has no settings for Dex")
	}
	replaced := strings.NewReplacer("127.0.0.1:5556", address, "http://127.0.0.1:8080/auth/callback", redirectURL).Replace(string(found[1]))
	if !strings.Contains(replaced, address) || !strings.Contains(replaced, redirectURL) {
		return "", fmt.Errorf("the settings in docs/guides/securing.md have unexpected addresses: %s", replaced)
	}
	return replaced + "connectors:\n- type: mockCallback\n  id: mock\n  name: Mock\n", nil
}

// Run starts Dex and returns when it answers. It has no sessions from before a Stop, and signs with
// a new key.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // Dex has its own copy
	// It ends when its input does, so at the latest with this process.
	process := exec.Command("/bin/sh", "-c", `exec 3<&0; "$0" serve "$1" </dev/null 3<&- & (read -r _ <&3; kill -KILL $!) 2>/dev/null & wait %1`, s.program, s.settings())
	process.Dir, process.Env = s.dir, []string{"PATH=/usr/bin:/bin"}
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C doesn't reach it
	process.Stdout, process.Stderr = log, log
	if s.input, err = process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	s.process, s.ended = process, ended
	go func() {
		_ = process.Wait() // its result doesn't matter
		close(ended)
	}()
	for !s.answers(t) {
		select {
		case <-ended:
			t.Fatalf("Dex ended: %s", s.said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) answers(t testing.TB) bool {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Issuer+"/.well-known/openid-configuration", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Stop ends Dex, if it runs.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	_ = s.input.Close()
	<-s.ended
	s.process = nil
}
