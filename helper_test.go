package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config/quantity"
)

// parseHelper returns the command of a command line of rockpool helper.
func parseHelper(t *testing.T, arguments ...string) (helperCommand, error) {
	t.Helper()
	var all commands
	parser, err := kong.New(&all, kong.Vars{"version": "x"}, kong.Bind(command.Streams{}), quantity.Flags())
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(append([]string{"helper"}, arguments...))
	return all.Helper, err
}

func TestHelperSettings(t *testing.T) {
	data := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	command, err := parseHelper(t, "--user", "61234", "--data", link, "--cgroup-parent", "rockpool/x")
	if err != nil {
		t.Fatal(err)
	}
	config, err := command.daemon()
	if err != nil || config.UID != 61234 || config.Images != data+"/local/images" || config.Parent != "/rockpool/x" || config.Socket != "/run/rockpool/sandbox.sock" {
		t.Errorf("%+v, %v", config, err)
	}
	t.Setenv("ROCKPOOL_GVISOR_RUNTIME", "/usr/local/bin/runsc --debug")
	if command, err = parseHelper(t, "--user", "61234", "--oci-runtimes", "runc=/usr/bin/runc"); err != nil {
		t.Fatal(err)
	}
	config, err = command.daemon()
	if all := config.Runtimes; err != nil || len(all) != 2 || all["gvisor"].Path != "/usr/local/bin/runsc" || all["runc"].Path != "/usr/bin/runc" {
		t.Errorf("%+v, %v", all, err)
	}
	t.Setenv("LISTEN_FDS", "1")
	t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	if config, err = command.daemon(); err != nil || config.Socket != "" {
		t.Errorf("with a socket of systemd's: %+v, %v", config, err)
	}
	for wrong, allowed := range map[string]string{
		"--user=nobody-like-this": "useradd", "--user=root": "other than root", "--user=0": "other than root", "--user=-1": "a user",
		"--socket=s": "an absolute path", "--state=/": "an absolute path", "--data=/x/../y": "an absolute path", "--cgroup-parent=system.slice": "rockpool, or",
		"--gvisor-runtime=runsc": "an absolute path", "--oci-runtimes=gvisor=/bin/runsc": "except \"gvisor\"",
	} {
		arguments := []string{"--user", "61234", wrong}
		command, err := parseHelper(t, arguments...)
		if err == nil {
			_, err = command.daemon()
		}
		if err == nil || !strings.Contains(err.Error(), allowed) {
			t.Errorf("%s: got %v, want %q", wrong, err, allowed)
		}
	}
}
