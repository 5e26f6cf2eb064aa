// Package codeocean uses a server's API poseidon with the Ruby libraries of CodeOcean: see
// platform.rb.
package codeocean

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

//go:embed platform.rb
var program string

// Scenarios are the scenarios of platform.rb.
var Scenarios = []string{
	"environments are synchronised", "whoami", "a megabyte", "several files are scored in one runner", "stdin", "the command line",
	"time-out", "out of memory", "much output", "a client that leaves ends its program", "paths", "errors",
}

// A Platform is a CodeOcean.
type Platform struct {
	URL, Token string // of the server
	Image      string // of its environments
}

// Run runs all scenarios except those named. They share an environment.
func (p Platform) Run(t *testing.T, without ...string) {
	t.Helper()
	if err := exec.Command("ruby", "-e", "require 'faraday'; require 'net/http/persistent'; require 'faye/websocket'").Run(); err != nil {
		need.Lacks(t, "Ruby's faraday, net-http-persistent and faye-websocket are needed: scripts/needs platform (%v)", err)
	}
	put := fmt.Sprintf(`{"image":%q,"prewarmingPoolSize":2,"cpuLimit":20,"memoryLimit":128,"networkAccess":false,"exposedPorts":[]}`, p.Image)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.URL+"/api/v1/execution-environments/17", strings.NewReader(put))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Poseidon-Token", p.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusCreated {
		t.Fatalf("PUT is answered with %s: %s", response.Status, body)
	}
	for _, name := range Scenarios {
		if slices.Contains(without, name) {
			continue
		}
		t.Run(name, func(t *testing.T) { p.run(t, name) })
	}
}

func (p Platform) run(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ruby", "-", name)
	cmd.Stdin = strings.NewReader(program)
	// Without a locale, Ruby reads the script as US-ASCII.
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "POSEIDON_URL="+p.URL+"/api/v1", "POSEIDON_TOKEN="+p.Token, "POSEIDON_IMAGE="+p.Image)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil || said.String() != "ok\n" {
		t.Errorf("%v\n%s", err, said.String())
	}
}
