package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/similar"
)

// Advice returns a hint for a command's error; "" if there is none.
func Advice(err error) string {
	code := client.CodeOf(err)
	switch {
	case code == runtime.CodeUnauthenticated:
		return "give a file with a token with --token-file (or ROCKPOOL_TOKEN_FILE), or set ROCKPOOL_TOKEN to the token; an ADMIN creates tokens with `rockpool token create`"
	case code == runtime.CodeForbidden:
		return "`rockpool whoami` shows your role and tenant; give another token with --token-file (or ROCKPOOL_TOKEN_FILE, ROCKPOOL_TOKEN)"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "this server doesn't use TLS: start the URL in --server (or ROCKPOOL_SERVER) with http://"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens there: start one with `rockpool serve`, or give another one with --server (or ROCKPOOL_SERVER)"
	case otherVersion(err):
		return "this rockpool and the server have different versions, and the server doesn't know what this one asks for: use the same version for both. `rockpool version` and the server's `rockpool version` print them"
	}
	return ""
}

// otherVersion matches the errors of a server with another schema: it lacks a field, an argument or a type.
func otherVersion(err error) bool {
	refused, ok := errors.AsType[*client.Error](err)
	return ok && slices.ContainsFunc([]string{"Cannot query field", "Unknown argument", "Unknown type", "unknown field", "is not defined by type"},
		func(words string) bool { return strings.Contains(refused.Message, words) })
}

// UnknownEnvironment returns err, or NoEnvironment's error if err says that the environment doesn't exist.
func UnknownEnvironment(ctx context.Context, server client.Sender, environment string, err error) error {
	if client.CodeOf(err) != runtime.CodeEnvironmentNotFound {
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
