package commands

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/port"
)

// TestE2EUnreachableRegistry: a command reports immediately, and again while it waits, that the
// registry doesn't answer. Ctrl-C ends it.
func TestE2EUnreachableRegistry(t *testing.T) {
	b := bed.Open(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	nobody := port.Spare(t)
	for image, says := range map[string]string{
		mute.Addr().String() + "/x:1": "no response yet about the image " + mute.Addr().String() + "/x:1",
		nobody + "/x:1":               "connection refused (CLUSTER_UNAVAILABLE); trying again",
	} {
		s := onScreen(t, nil, bed.Rockpool(t), "env", "put", "unreachable", "--server", b.Address, "--image", image)
		s.sees(t, says)
		seconds := func() string {
			s.sees(t, "waiting for ")
			return s.sees(t, " s")
		}
		for first := seconds(); seconds() == first; { // the command repeats the line with more seconds; on a busy machine not each second
		}
		s.types(t, "\x03")
		s.ends(t, 130)
	}
	if _, errs, code := b.Command(t, "", "env", "show", "unreachable"); code == 0 {
		t.Errorf("it was put: %s", errs)
	}
}

// TestE2EHintsOnATerminal: if a program fails because of its environment, a terminal shows a hint
// after its output. A script gets only the program's own output.
func TestE2EHintsOnATerminal(t *testing.T) {
	b := bed.Open(t)
	for _, test := range []struct {
		env     string
		command []string
		code    int
		says    string
	}{
		{"python", []string{"python3", "-c", "import nonesuch_module"}, 1, "hint: the environment lacks the module nonesuch_module"},
		{"shell", []string{"sh", "-c", "nonesuch-command"}, 127, `hint: the image "host" of the environment shell lacks the program`},
		{"shell", []string{"nonesuch-command"}, 127, `hint: the image "host" of the environment shell lacks the program`},
		{"python", []string{"python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 80))"}, 1, "rockpool env put python --network"},
		{"shell", []string{"/root/.local/bin/uv", "run"}, 127, "hint: runners don't see /root of the server's machine"},
		{"shell", []string{"apt-get", "install", "hello"}, 100, "hint: programs aren't root in a runner"},
		{"python", []string{"python3", "-c", "open('/usr/x', 'w')"}, 1, "hint: /usr/x is read-only in a runner"},
		{"shell", []string{"sh", "-c", "echo 'Network is unreachable' >&2"}, 0, ""},
		{"shell", []string{"sh", "-c", "echo 'Network is unreachable'; exit 1"}, 1, ""}, // on stdout, which isn't searched for hints
	} {
		arguments := append([]string{"run", "--env", test.env, "--"}, test.command...)
		arguments = slices.Insert(arguments, 1, "--server", b.Address)
		var out, errs bytes.Buffer
		code := bed.RunCLI(arguments, strings.NewReader(""), &out, &errs)
		plain := errs.String()
		if code != test.code || strings.Contains(plain, "hint") {
			t.Errorf("%q without a terminal: %d %s", test.command, code, plain)
		}
		s := onScreen(t, nil, bed.Rockpool(t), arguments...)
		if test.says != "" {
			s.sees(t, test.says)
		}
		s.ends(t, test.code)
		if test.says == "" && strings.Contains(s.seen, "hint") {
			t.Errorf("%q: %s", test.command, s.seen)
		}
	}
	t.Setenv("ROCKPOOL_HINTS", "1")
	var out, errs bytes.Buffer
	if bed.RunCLI([]string{"run", "--server", b.Address, "--env", "shell", "--", "sh", "-c", "nonesuch-command"}, strings.NewReader(""), &out, &errs); !strings.Contains(errs.String(), "hint: ") {
		t.Errorf("hints are on, and none is given: %s", errs.String())
	}
}
