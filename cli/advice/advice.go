// Package advice returns hints about what to do next: after a command's error, and after a program
// that failed because its environment lacks something. All rules are in one table.
package advice

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/similar"
)

// A Case is the situation that needs advice: a command's error, or the end of a program.
type Case struct {
	Err error // nil: a program ended

	ExitCode    int
	Message     string // why it could not be started
	Hint        string // the server's; "": none
	Stderr      string // the end of its standard error
	Environment string // the environment it ran in; "": unknown
	Image       string
	Network     bool   // whether the environment has network access
	Upload      string // the flag or command that puts files into the runner
}

// For returns a hint for a case, from the first rule that matches; "" if none does.
func For(c Case) string {
	for _, r := range rules() {
		if found, ok := r.applies(c); ok {
			return r.advice(c, found)
		}
	}
	return ""
}

// A rule gives advice about one kind of case. applies can return a name that it found in the case,
// for the text.
type rule struct {
	name    string
	applies func(c Case) (found string, ok bool)
	advice  func(c Case, found string) string
}

// rules returns all rules. The first one that applies decides.
func rules() []rule {
	return []rule{
		{"no token", code(runtime.CodeUnauthenticated), func(Case, string) string {
			return "give a file with a token with --token-file (or ROCKPOOL_TOKEN_FILE), or set ROCKPOOL_TOKEN to the token; an ADMIN creates tokens with `rockpool token create`"
		}},
		{"no right", code(runtime.CodeForbidden), func(Case, string) string {
			return "`rockpool whoami` shows your role and tenant; give another token with --token-file (or ROCKPOOL_TOKEN_FILE, ROCKPOOL_TOKEN)"
		}},
		{"no TLS", func(c Case) (string, bool) { return "", errors.Is(c.Err, http.ErrSchemeMismatch) }, func(Case, string) string {
			return "this server doesn't use TLS: start the URL in --server (or ROCKPOOL_SERVER) with http://"
		}},
		{"no server", func(c Case) (string, bool) { return "", errors.Is(c.Err, syscall.ECONNREFUSED) }, func(Case, string) string {
			return "no server listens there: start one with `rockpool serve`, or give another one with --server (or ROCKPOOL_SERVER)"
		}},
		{"other version", otherVersion, func(Case, string) string {
			return "this rockpool and the server have different versions, and the server doesn't know what this one asks for: use the same version for both. `rockpool version` and the server's `rockpool version` print them"
		}},
		{"the server's hint", func(c Case) (string, bool) { return "", c.Err == nil && c.Hint != "" }, func(c Case, _ string) string { return c.Hint }},
		{"no module", ended(`(?:ModuleNotFoundError: No module named '|Error: Cannot find module ')([\w@./-]{1,100})'`), noModule},
		{"no network", noNetwork, func(c Case, _ string) string {
			return fmt.Sprintf("the environment %s has no network access: an OPERATOR can allow it with `rockpool env put %s --network`, if the server runs with --network", c.Environment, c.Environment)
		}},
		{"no interpreter", func(c Case) (string, bool) {
			missing := strings.Contains(c.Message, "command not found") || strings.Contains(c.Message, "the interpreter in its first line (#!) doesn't exist")
			return "", c.Err == nil && (c.ExitCode == 127 || missing)
		}, noInterpreter},
	}
}

// otherVersion matches the errors of a server with another schema: it lacks a field, an argument or a type.
func otherVersion(c Case) (string, bool) {
	var refused *client.Error
	if !errors.As(c.Err, &refused) {
		return "", false
	}
	return "", slices.ContainsFunc([]string{"Cannot query field", "Unknown argument", "Unknown type", "unknown field", "is not defined by type"},
		func(words string) bool { return strings.Contains(refused.Message, words) })
}

// code matches an error of the server by its code.
func code(code runtime.Code) func(Case) (string, bool) {
	return func(c Case) (string, bool) {
		var refused *client.Error
		return "", errors.As(c.Err, &refused) && refused.Extensions.Code == code
	}
}

// ended matches the end of a failed program's standard error.
func ended(pattern string) func(Case) (string, bool) {
	compiled := regexp.MustCompile(pattern)
	return func(c Case) (string, bool) {
		if c.Err != nil || c.ExitCode == 0 {
			return "", false
		}
		found := compiled.FindStringSubmatch(c.Stderr)
		if found == nil {
			return "", false
		}
		return found[len(found)-1], true
	}
}

// noNetwork matches a failed program in an environment without network access, if it printed a
// typical error of resolvers or connections.
func noNetwork(c Case) (string, bool) {
	if c.Network || c.Environment == "" {
		return "", false
	}
	return ended(`(?i)(temporary failure in name resolution|name or service not known|could not resolve host|unable to resolve host|bad address '|network is unreachable|\bENETUNREACH\b|\bEAI_AGAIN\b|getaddrinfo ENOTFOUND)`)(c)
}

// noInterpreter advises on a program that the runner doesn't have.
func noInterpreter(c Case, _ string) string {
	place := "the runner"
	if c.Image != "" {
		place = fmt.Sprintf("the image %q of the environment %s", c.Image, c.Environment)
	}
	return place + " lacks the program: choose another environment with --env (`rockpool env list` lists them), or change the image with `rockpool env put ENVIRONMENT --image IMAGE`"
}

// noModule advises on a module that the program imports and the environment lacks. A path is the
// program's own file.
func noModule(c Case, module string) string {
	if strings.HasPrefix(module, ".") || strings.HasPrefix(module, "/") {
		return fmt.Sprintf("also upload the file of %s, with %s", module, c.Upload)
	}
	environment := "ENVIRONMENT"
	if c.Environment != "" {
		environment = c.Environment
	}
	text := fmt.Sprintf("the environment lacks the module %s: use an image that has it (`rockpool env put %s --image IMAGE`), or upload your own module with %s", module, environment, c.Upload)
	if c.Image == runtime.DefaultImage {
		text += "; for the image host, install it on the server's machine"
	}
	if strings.Contains(c.Stderr, "ModuleNotFoundError") {
		text += fmt.Sprintf(" (if the image has it, --warm-module %s loads it in advance)", module)
	}
	return text
}

// Unknown returns err, or NoEnvironment's error if err says that the environment doesn't exist.
func Unknown(ctx context.Context, server client.Sender, environment string, err error) error {
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Extensions.Code != runtime.CodeEnvironmentNotFound {
		return err
	}
	return NoEnvironment(ctx, server, environment)
}

// NoEnvironment returns the error about an environment that doesn't exist. It suggests up to three
// environments with a similar name that the caller may see.
func NoEnvironment(ctx context.Context, server client.Sender, environment string) error {
	return fmt.Errorf("environment %q doesn't exist%s", environment, suggestion(ctx, server, environment))
}

// suggestion returns the end of the message about an unknown environment. It names similar ones, if
// the server lists any.
func suggestion(ctx context.Context, server client.Sender, environment string) string {
	const list = "; `rockpool env list` lists the environments that you can use"
	out, err := client.GetEnvironments(ctx, server)
	if err != nil { // the caller's own error is enough
		return list
	}
	var ids []string
	for _, e := range out.Environments {
		ids = append(ids, e.Id)
	}
	if question := similar.Question(environment, ids); question != "" {
		return "; " + question + strings.Replace(list, ";", "", 1)
	}
	return list
}
